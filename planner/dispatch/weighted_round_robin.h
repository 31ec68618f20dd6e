// Weighted round robin: each chain gets a share of the requests in proportion to its weight (ChainState::weight, otherwise
// service_rate x capacity), evenly spread, whether or not it has a free slot. A baseline of Xiong et al. 2025 (Huawei).
//
// Stride scheduling (Waldspurger and Weihl 1995): a chain's next request is due 1 / weight after its last one, and the chain
// with the earliest due time takes the next request (the first one on a tie). For a chain that starts to accept requests, the
// first is due 1 / weight from then, so it does not catch up. reset() starts over.
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
  Tournament<double, std::less<>> due_;  // due times of open chains
  double now_ = 0;                       // due time of the last request
};

}  // namespace windlass::dispatch
