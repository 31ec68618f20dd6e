// Random: a uniformly random chain that accepts requests, whether or not it has a free slot. The baseline that uses no
// information.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "planner/base/rng.h"
#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/ranked_set.h"

namespace windlass::dispatch {

class RandomChoice final : public DispatchPolicy {
 public:
  explicit RandomChoice(Rng rng) : rng_(rng) {}

  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override { open_.set(index, state.takes_requests()); }
  [[nodiscard]] std::optional<std::size_t> choose() override;

 private:
  Rng rng_;
  RankedSet open_;  // chains that take requests
};

}  // namespace windlass::dispatch
