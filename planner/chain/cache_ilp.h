// Finds the optimal cache allocation for a given placement: the integer program of Sun, He, Hou 2026, Eq. 7 with the placement
// fixed. Fig. 4 uses it as "Optimal ILP" to judge GCA (Section 4.1.2).
//
//   minimise   sum c_k
//   such that  sum c_k mu_k >= required rate                          (7b)
//              sum over chains through j of m_ij c_k <= slots of j    (7d)
//              c_k a natural number
//
// With the chains constructed by GCA the result is optimal for these chains; with all feasible chains it is optimal for the
// placement. Solved by Cbc; both constraints are checked again on the integers, in doubles. Capacities whose rate is within
// 1e-6 of the required one may be skipped in favour of higher ones. Pure.
#pragma once

#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/compose.h"

namespace windlass::chain {

struct CacheAllocation {
  bool feasible = false;         // false: these chains cannot reach the required rate
  bool proved = false;           // optimality (or infeasibility) is proved; false: the node limit was reached first
  std::vector<long> capacities;  // c_k of the given chains, in order; empty if none is known
  long total_capacity = 0;       // (7a)
  double total_service_rate_per_s = 0;
};

// The capacities in `chains` are ignored. `known`: capacities that reach the rate, as a start for the search, or empty. The
// search stops at a node limit that falls with the size of the program, so it takes a few seconds at most. REQUIRES: chains
// feasible under the placement, with m_ij in blocks.
[[nodiscard]] Result<CacheAllocation> optimal_cache_allocation(const Instance& instance, const Placement& placement,
                                                               const std::vector<ServerChain>& chains,
                                                               double required_rate_per_s, std::span<const long> known = {});

// The allocation with the largest total service rate for these chains: maximises sum c_k mu_k subject to (7d).
[[nodiscard]] Result<CacheAllocation> largest_rate_allocation(const Instance& instance, const Placement& placement,
                                                              const std::vector<ServerChain>& chains);

// All feasible chains of a placement whose servers each have room for one request, with capacity 0, in the order of the
// servers' lists. Their number may grow exponentially: kResourceExhausted beyond max_chains.
[[nodiscard]] Result<std::vector<ServerChain>> all_chains(const Instance& instance, const Placement& placement,
                                                          long max_chains = 10'000);

struct OptimisedComposition {
  Composition composition;
  bool proved = false;  // false: the best solution found within the node limit
};

// For `windlass chain compose --optimal`: reduces the capacities of the composition's chains to the smallest total that still
// reaches lambda / rho-bar. Chains without capacity are dropped; rates and bounds are recomputed. The search starts from the
// present capacities, cut down to the rate. Errors: kFailedPrecondition if the chains cannot reach that rate (the composition
// then already has all capacity), kResourceExhausted if the node limit was reached before any solution was found.
[[nodiscard]] Result<OptimisedComposition> with_optimal_caches(const Instance& instance, Composition composition);

}  // namespace windlass::chain
