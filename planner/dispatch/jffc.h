// Join the Fastest Free Chain (JFFC): Sun, He, Hou 2026 ("chain-structured jobs"), Alg. 3.
//
// On arrival, the request goes to the chain with the highest service rate among those with a free slot. If none is free it
// waits in a central first-come-first-served queue. On completion, the head of the queue goes to the chain that became free.
// The system is stable for any arrival rate below sum(c_k mu_k) (the paper's theorem on throughput optimality).
//
// The paper does not define ties, because in its model the speed of a slot does not depend on the others. In a real engine a
// larger batch slows every request down, so a tie goes to the chain with the smallest share of its slots taken, then to the one
// listed first.
//
// The free chains play a tournament: O(1) to choose, O(log K) per change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/tournament.h"

namespace windlass::dispatch {

class Jffc final : public DispatchPolicy {
 public:
  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return free_.best(); }

 private:
  struct Chain {
    double service_rate_per_s = 0;
    std::int64_t in_flight = 0;
    std::int64_t capacity = 1;
  };
  struct FasterOrEmptier {
    bool operator()(const Chain& a, const Chain& b) const {
      if (a.service_rate_per_s != b.service_rate_per_s) return a.service_rate_per_s > b.service_rate_per_s;
      return a.in_flight * b.capacity < b.in_flight * a.capacity;
    }
  };

  Tournament<Chain, FasterOrEmptier> free_;
};

}  // namespace windlass::dispatch
