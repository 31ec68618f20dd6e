// Smallest Expected Delay (SED): the chain that is expected to finish the request first. A baseline of Sun, He, Hou 2026,
// extended to chains with several slots: the delay is T_k with a free slot, otherwise T_k (n + 1) / c_k with n requests at the
// chain, including those that wait. Ties go to the chain listed first. It never makes a request wait centrally while a chain
// accepts requests.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/tournament.h"

namespace windlass::dispatch {

class Sed final : public DispatchPolicy {
 public:
  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return tournament_.best(); }

 private:
  Tournament<double, std::less<>> tournament_;  // of expected delays in seconds
};

}  // namespace windlass::dispatch
