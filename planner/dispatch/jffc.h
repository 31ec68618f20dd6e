// Join the Fastest Free Chain (JFFC): Sun, He, Hou 2026 ("chain-structured jobs"), Alg. 3.
//
// On arrival: among the chains with a free slot the one with the highest service rate; none free: the central queue, first come
// first served. On completion the head of the queue goes to the chain that became free. Under any arrival rate below
// sum(c_k mu_k) the system is stable (the paper's Theorem on throughput optimality).
//
// The paper leaves ties open, as in its model a slot serves equally fast however many others are taken. Batches of an engine
// do slow each other down, so a tie goes to the chain with the smallest share of its slots taken, then to the one listed first.
//
// The free chains play a tournament: O(1) to choose, O(log K) a change.
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
