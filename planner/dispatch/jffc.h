// Join the Fastest Free Chain (JFFC): Sun, He, Hou 2026 ("chain-structured jobs"), Alg. 3.
//
// On arrival: among the chains with a free slot the one with the highest service rate; none free: the central queue, first come
// first served. On completion the head of the queue goes to the chain that became free. Ties go to the chain listed first.
// Under any arrival rate below sum(c_k mu_k) the system is stable (the paper's Theorem on throughput optimality).
//
// The free chains are a set of places in the order of falling rate, so a decision is the set's smallest element: O(log_64 K).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/index_set.h"

namespace windlass::dispatch {

class Jffc final : public DispatchPolicy {
 public:
  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override;

 private:
  std::vector<std::size_t> by_rate_;   // chain at each place, fastest first
  std::vector<std::size_t> place_of_;  // its inverse
  IndexSet free_;                      // places of chains with a free slot
};

}  // namespace windlass::dispatch
