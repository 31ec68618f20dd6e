// Smallest Expected Delay (SED): the chain at which the request can expect to be done first. A baseline of Sun, He, Hou 2026,
// extended to chains of several slots: T_k with a free slot, else T_k (n + 1) / c_k with n requests at the chain, those that
// wait included. Ties go to the chain listed first. It never answers "wait" while one chain takes requests.
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
