// Optimal cache allocation under a given placement: the integer program of Sun, He, Hou 2026, Eq. 7 with the placement fixed,
// as Fig. 4's "Optimal ILP" uses it to judge GCA (Section 4.1.2).
//
//   minimise   sum c_k
//   such that  sum c_k mu_k >= required rate                          (7b)
//              sum over chains through j of m_ij c_k <= slots of j    (7d)
//              c_k a natural number
//
// With the chains that GCA constructed it is optimal on condition of these chains; with all feasible chains it is optimal for
// the placement. Solved by Cbc; both constraints are checked again on the integers, as doubles give them. Capacities whose rate
// lies within 1e-6 of the required one may be passed over for ones above it. Pure.
#pragma once

#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/compose.h"

namespace windlass::chain {

struct CacheAllocation {
  bool feasible = false;         // false: these chains cannot reach the required rate
  bool proved = false;           // the optimum (or the infeasibility) is proved; false: the node limit came first
  std::vector<long> capacities;  // c_k of the given chains, in their order; empty when none is known
  long total_capacity = 0;       // (7a)
  double total_service_rate_per_s = 0;
};

// The chains' own capacities are not looked at; `known`: capacities that reach the rate, or nothing, from which the search
// starts. The search ends at a limit of nodes that falls with the size of the program, so that it takes some seconds at most.
// REQUIRES: chains feasible under the placement, with m_ij in blocks.
[[nodiscard]] Result<CacheAllocation> optimal_cache_allocation(const Instance& instance, const Placement& placement,
                                                               const std::vector<ServerChain>& chains,
                                                               double required_rate_per_s, std::span<const long> known = {});

// The largest total service rate that any capacities of these chains give: (7d) alone, maximising sum c_k mu_k.
[[nodiscard]] Result<CacheAllocation> largest_rate_allocation(const Instance& instance, const Placement& placement,
                                                              const std::vector<ServerChain>& chains);

// All feasible chains of a placement whose servers each have room for one request, capacity 0, in the order of the servers'
// lists. Their number may grow exponentially: kResourceExhausted beyond max_chains.
[[nodiscard]] Result<std::vector<ServerChain>> all_chains(const Instance& instance, const Placement& placement,
                                                          long max_chains = 10'000);

struct OptimisedComposition {
  Composition composition;
  bool proved = false;  // false: the best that was found up to the node limit
};

// `windlass chain compose --optimal`: the composition with the fewest capacities on its own chains that still reach
// lambda / rho-bar; chains left without are dropped, rates and bounds follow. Errors: kFailedPrecondition when its chains do
// not reach that rate (the composition has every capacity they can give, then), kResourceExhausted when the node limit came
// before any that do. Its own capacities, cut down to the rate, are the first candidate.
[[nodiscard]] Result<OptimisedComposition> with_optimal_caches(const Instance& instance, Composition composition);

}  // namespace windlass::chain
