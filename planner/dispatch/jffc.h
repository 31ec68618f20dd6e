// Join the Fastest Free Chain (JFFC): Sun, He, Hou 2026 ("chain-structured jobs"), Alg. 3.
//
// On arrival: among the chains with a free slot the one with the highest service rate; none free: the central queue, first come
// first served. On completion the head of the queue goes to the chain that became free. Ties go to the chain listed first.
// Under any arrival rate below sum(c_k mu_k) the system is stable (the paper's Theorem on throughput optimality).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "planner/dispatch/dispatch_policy.h"

namespace windlass::dispatch {

class Jffc final : public DispatchPolicy {
 public:
  [[nodiscard]] std::optional<std::size_t> choose(std::span<const ChainState> chains) const override;
};

}  // namespace windlass::dispatch
