// Single instance: every request goes to the strongest chain that accepts requests, whether or not it has a free slot. A
// baseline of Xiong et al. 2025 (Huawei), which sends all to "the first instance", the stronger of its two.
//
// The strongest chain has the largest weight (ChainState::weight, otherwise service_rate x capacity); on a tie the first.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/tournament.h"

namespace windlass::dispatch {

class SingleInstance final : public DispatchPolicy {
 public:
  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return strongest_.best(); }

 private:
  Tournament<double, std::greater<>> strongest_;  // of weights
};

}  // namespace windlass::dispatch
