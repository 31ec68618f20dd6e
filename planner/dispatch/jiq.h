// Join the Idle Queue (JIQ) chooses a uniformly random chain with a free slot, or, if there is none, a uniformly random chain
// that accepts requests. A baseline of Sun, He, Hou 2026, extended to chains with several slots: idle means that a slot is
// free.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "planner/base/rng.h"
#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/ranked_set.h"

namespace windlass::dispatch {

class Jiq final : public DispatchPolicy {
 public:
  explicit Jiq(Rng rng) : rng_(rng) {}

  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override;

 private:
  Rng rng_;
  RankedSet free_;  // chains with a free slot
  RankedSet open_;  // chains that take requests
};

}  // namespace windlass::dispatch
