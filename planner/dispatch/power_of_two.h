// Power of two choices: of two random chains that accept requests, the one with fewer requests in flight relative to its slots;
// on a tie the one drawn first. The baseline of Aladdin's evaluation (Nie, Fonseca, Liu 2024, Section 6.1). It never makes a
// request wait centrally while a chain accepts requests.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "planner/base/rng.h"
#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/ranked_set.h"

namespace windlass::dispatch {

class PowerOfTwo final : public DispatchPolicy {
 public:
  explicit PowerOfTwo(Rng rng) : rng_(rng) {}

  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override;

 private:
  Rng rng_;
  RankedSet open_;  // chains that take requests
  std::vector<ChainState> chains_;
};

}  // namespace windlass::dispatch
