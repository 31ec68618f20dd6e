// Weighted round robin: of all requests each chain gets a part in proportion to its weight (ChainState::weight, else
// service_rate x capacity), evenly spread, whether or not it has a free slot. A baseline of Xiong et al. 2025 (Huawei).
//
// Stride scheduling (Waldspurger and Weihl 1995): a chain's request is due 1 / weight after its last one; the chain whose
// request is due first takes the next one, the first of equals. A chain that begins to take requests has its first one due
// 1 / weight from then, so that it makes up for nothing. A reset() starts over.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/tournament.h"

namespace windlass::dispatch {

class WeightedRoundRobin final : public DispatchPolicy {
 public:
  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override;

 private:
  struct Chain {
    bool open = false;
    double stride = 0;  // 1 / weight
    double due = 0;
  };

  std::vector<Chain> chains_;
  Tournament<double, std::less<>> due_;  // of open chains
  double now_ = 0;                       // when the last request was due
};

}  // namespace windlass::dispatch
