// Optimal cache allocation by integer programming; see cache_ilp.h.
#include "planner/chain/cache_ilp.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "planner/mip/mixed_integer_program.h"
#include "planner/queueing/chain_bounds.h"

namespace windlass::chain {
namespace {

// The time of a node is proportional to the size of the program. This many coefficients take a few seconds.
constexpr double kMaxWork = 2e6;

long max_nodes(const mip::MixedIntegerProgram& program) {
  std::size_t size = program.variables().size();
  for (const mip::Constraint& constraint : program.constraints()) size += constraint.terms.size();
  return static_cast<long>(std::clamp(kMaxWork / static_cast<double>(size), 10.0, 1e6));
}

// Builds a program with the capacities as variables, constrained by the slots of every server.
mip::MixedIntegerProgram memory_program(const std::vector<long>& slots, const std::vector<ServerChain>& chains) {
  mip::MixedIntegerProgram program;
  std::vector<std::vector<mip::Term>> taken(slots.size());
  for (const ServerChain& chain : chains) {
    assert(chain.servers.size() == chain.blocks.size());
    long most = chain.servers.empty() ? 0 : std::numeric_limits<long>::max();
    for (std::size_t hop = 0; hop < chain.servers.size(); ++hop) {
      most = std::min(most, slots[static_cast<std::size_t>(chain.servers[hop])] / chain.blocks[hop]);
    }
    const int variable =
        program.add_variable({.lower = 0, .upper = static_cast<double>(most), .objective = 1, .integer = true});
    for (std::size_t hop = 0; hop < chain.servers.size(); ++hop) {
      taken[static_cast<std::size_t>(chain.servers[hop])].push_back({variable, static_cast<double>(chain.blocks[hop])});
    }
  }
  for (std::size_t j = 0; j < slots.size(); ++j) {
    if (taken[j].size() > 1) program.add_at_most(std::move(taken[j]), static_cast<double>(slots[j]));
  }
  return program;
}

CacheAllocation allocation(const std::vector<ServerChain>& chains, const mip::Solution& solution) {
  CacheAllocation result;
  result.proved = solution.status != mip::Status::kNodeLimit;
  result.feasible = !solution.values.empty();
  for (std::size_t k = 0; k < solution.values.size(); ++k) {
    result.capacities.push_back(std::lround(solution.values[k]));
    result.total_capacity += result.capacities.back();
    result.total_service_rate_per_s += static_cast<double>(result.capacities.back()) * chains[k].service_rate_per_s();
  }
  return result;
}

bool fits(const std::vector<long>& slots, const std::vector<ServerChain>& chains, const CacheAllocation& allocation) {
  std::vector<long> left = slots;
  for (std::size_t k = 0; k < allocation.capacities.size(); ++k) {
    for (std::size_t hop = 0; hop < chains[k].servers.size(); ++hop) {
      left[static_cast<std::size_t>(chains[k].servers[hop])] -= allocation.capacities[k] * chains[k].blocks[hop];
    }
  }
  return std::all_of(left.begin(), left.end(), [](long slots_left) { return slots_left >= 0; });
}

// The chains' own capacities, fastest first, until they reach the rate. Empty if all of them do not.
std::vector<long> fastest_capacities(const std::vector<ServerChain>& chains, double required_rate_per_s) {
  std::vector<std::size_t> order(chains.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return chains[a].service_time_s < chains[b].service_time_s; });
  std::vector<long> capacities(chains.size(), 0);
  double lacking_per_s = required_rate_per_s;
  for (const std::size_t k : order) {
    if (lacking_per_s <= 0) break;
    const double rate_per_s = chains[k].service_rate_per_s();
    const double wanted = std::ceil(lacking_per_s / rate_per_s);
    capacities[k] = wanted < chains[k].capacity ? static_cast<long>(wanted) : chains[k].capacity;
    lacking_per_s -= static_cast<double>(capacities[k]) * rate_per_s;
  }
  if (lacking_per_s > 0) capacities.clear();
  return capacities;
}

Error beyond_precision() {
  return Error{ErrorCode::kInternal, "Cbc: returned capacities that take more caches than the servers have"};
}

}  // namespace

Result<CacheAllocation> optimal_cache_allocation(const Instance& instance, const Placement& placement,
                                                 const std::vector<ServerChain>& chains, double required_rate_per_s,
                                                 std::span<const long> known) {
  if (!(required_rate_per_s > 0)) {  // no rate is required
    CacheAllocation none;
    none.feasible = none.proved = true;
    none.capacities.assign(chains.size(), 0);
    return none;
  }
  CacheAllocation unreachable;
  unreachable.proved = true;
  if (chains.empty()) return unreachable;
  const std::vector<long> slots = cache_slots(instance, placement);
  const std::vector<double> start(known.begin(), known.end());
  // The rate is measured in units of the required rate, so that Cbc's tolerance is relative to it. If the answer is within the
  // tolerance but below the rate, ask again for slightly more than is missing.
  double asked = 1;
  while (asked < 1 + 1e-5) {
    mip::MixedIntegerProgram program = memory_program(slots, chains);
    std::vector<mip::Term> rate;
    for (std::size_t k = 0; k < chains.size(); ++k) {
      rate.push_back({static_cast<int>(k), chains[k].service_rate_per_s() / required_rate_per_s});
    }
    program.add_at_least(std::move(rate), asked);
    WINDLASS_ASSIGN_OR_RETURN(const mip::Solution solution, mip::solve(program, max_nodes(program), start));
    CacheAllocation result = allocation(chains, solution);
    if (!result.feasible) return result;
    if (!fits(slots, chains, result)) return beyond_precision();
    if (result.total_service_rate_per_s >= required_rate_per_s) return result;
    asked += 2 * (1 - result.total_service_rate_per_s / required_rate_per_s) + 1e-7;
  }
  return unreachable;
}

Result<CacheAllocation> largest_rate_allocation(const Instance& instance, const Placement& placement,
                                                const std::vector<ServerChain>& chains) {
  const std::vector<long> slots = cache_slots(instance, placement);
  const mip::MixedIntegerProgram memory = memory_program(slots, chains);
  double fastest = 0;
  for (const ServerChain& chain : chains) fastest = std::max(fastest, chain.service_rate_per_s());
  mip::MixedIntegerProgram program;
  for (std::size_t k = 0; k < chains.size(); ++k) {
    mip::Variable variable = memory.variables()[k];
    variable.objective = -chains[k].service_rate_per_s() / fastest;
    program.add_variable(variable);
  }
  for (const mip::Constraint& constraint : memory.constraints()) {
    program.add_range(constraint.terms, constraint.lower, constraint.upper);
  }
  WINDLASS_ASSIGN_OR_RETURN(const mip::Solution solution, mip::solve(program, max_nodes(program)));
  CacheAllocation result = allocation(chains, solution);
  result.feasible = true;  // zero capacity is always feasible
  if (result.capacities.empty()) result.capacities.assign(chains.size(), 0);
  if (!fits(slots, chains, result)) return beyond_precision();
  return result;
}

Result<std::vector<ServerChain>> all_chains(const Instance& instance, const Placement& placement, long max_chains) {
  const std::vector<long> slots = cache_slots(instance, placement);
  std::vector<ServerChain> found;
  ServerChain chain;
  bool too_many = false;
  // The servers identify a chain: the next block, and so the blocks that each processes, follow from them.
  const auto extend = [&](const auto& self, int next) -> void {
    if (next > instance.blocks) {
      if (static_cast<long>(found.size()) >= max_chains) {
        too_many = true;
        return;
      }
      chain.service_time_s = service_time_s(instance, chain.servers, chain.blocks);
      found.push_back(chain);
      return;
    }
    for (std::size_t j = 0; j < placement.size() && !too_many; ++j) {
      const int processed = placement[j].last() - next + 1;
      if (!placement[j].holds(next) || slots[j] < processed) continue;
      chain.servers.push_back(static_cast<int>(j));
      chain.blocks.push_back(processed);
      self(self, next + processed);
      chain.servers.pop_back();
      chain.blocks.pop_back();
    }
  };
  extend(extend, 1);
  if (too_many) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("chains of the placement: must be at most {} (got more)", max_chains)};
  }
  return found;
}

Result<OptimisedComposition> with_optimal_caches(const Instance& instance, Composition composition) {
  const double required = instance.arrival_rate_per_s / instance.max_load;
  WINDLASS_ASSIGN_OR_RETURN(const CacheAllocation allocation,
                            optimal_cache_allocation(instance, composition.placement, composition.chains, required,
                                                     fastest_capacities(composition.chains, required)));
  if (!allocation.feasible && allocation.proved) {
    return Error{ErrorCode::kFailedPrecondition,
                 fmt::format("optimal cache allocation: no capacities of these chains reach {} requests per second "
                             "(arrivalRate / maxLoad)",
                             required)};
  }
  if (!allocation.feasible) {
    return Error{
        ErrorCode::kResourceExhausted,
        fmt::format("optimal cache allocation: the node limit was reached before finding capacities for {} requests per "
                    "second or proving that none exist; use a smaller instance",
                    required)};
  }
  std::vector<ServerChain> chains;
  std::vector<planner::ChainRate> rates;
  for (std::size_t k = 0; k < composition.chains.size(); ++k) {
    if (allocation.capacities[k] == 0) continue;
    chains.push_back(composition.chains[k]);
    chains.back().capacity = static_cast<int>(allocation.capacities[k]);
    rates.push_back({chains.back().service_rate_per_s(), allocation.capacities[k]});
  }
  composition.chains = std::move(chains);
  composition.total_capacity = allocation.total_capacity;
  composition.total_service_rate_per_s = planner::total_rate_per_s(rates);
  composition.stable = instance.arrival_rate_per_s < composition.total_service_rate_per_s;
  composition.meets_max_load = true;  // that is the required rate
  composition.mean_response_lower_s.reset();
  composition.mean_response_upper_s.reset();
  if (composition.stable) {
    composition.mean_response_lower_s = planner::mean_response_lower_s(rates, instance.arrival_rate_per_s);
    composition.mean_response_upper_s = planner::mean_response_upper_s(rates, instance.arrival_rate_per_s);
  }
  return OptimisedComposition{std::move(composition), allocation.proved};
}

}  // namespace windlass::chain
