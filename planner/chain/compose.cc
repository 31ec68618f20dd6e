// Composes chains; see compose.h.
#include "planner/chain/compose.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/chain/capacity_search.h"
#include "planner/chain/gbp_cr.h"
#include "planner/chain/gca.h"
#include "planner/queueing/chain_bounds.h"

namespace windlass::chain {
namespace {

using planner::ChainRate;

std::vector<ChainRate> rates_of(const std::vector<ServerChain>& chains) {
  std::vector<ChainRate> rates;
  for (const ServerChain& chain : chains) rates.push_back(ChainRate{chain.service_rate_per_s(), chain.capacity});
  return rates;
}

// Explains why no full chain can be placed, with the least memory that is missing: servers with most left over need least for
// another block.
Error nothing_fits(const Instance& instance, int capacity) {
  const double each_gb = instance.block_gb + instance.cache_gb * capacity;
  long placed = 0;
  std::vector<double> short_of_another_gb;
  for (const Server& server : instance.servers) {
    const int blocks = blocks_for_capacity(instance, server.memory_gb, capacity);
    placed += blocks;
    short_of_another_gb.push_back(std::max(0.0, each_gb * (blocks + 1) - server.memory_gb));
  }
  std::sort(short_of_another_gb.begin(), short_of_another_gb.end());
  double missing_gb = 0;
  for (long i = 0; i < instance.blocks - placed; ++i) {
    missing_gb +=
        i < static_cast<long>(short_of_another_gb.size()) ? short_of_another_gb[static_cast<std::size_t>(i)] : each_gb;
  }
  return Error{
      ErrorCode::kFailedPrecondition,
      fmt::format("no full chain can be placed: the servers' memories hold {} of {} blocks with the caches of {} request{} "
                  "each; at least {:.6g} GB of memory are missing",
                  placed, instance.blocks, capacity, capacity == 1 ? "" : "s", missing_gb)};
}

}  // namespace

const char* to_string(Tuning tuning) {
  switch (tuning) {
    case Tuning::kLowerBound: return "lower-bound";
    case Tuning::kUpperBound: return "upper-bound";
    case Tuning::kSurrogate: return "surrogate";
  }
  return "";
}

int max_capacity(const Instance& instance) {
  double largest_gb = 0;
  for (const Server& server : instance.servers) largest_gb = std::max(largest_gb, server.memory_gb);
  const double capacity = std::floor((largest_gb - instance.block_gb) / instance.cache_gb);
  return static_cast<int>(std::clamp(capacity, 0.0, 1e9));
}

Composition compose_on(const Instance& instance, Placement placement) {
  Composition result;
  result.chains = gca(instance, placement);
  result.placement = std::move(placement);
  for (const ServerChain& chain : result.chains) result.total_capacity += chain.capacity;
  const auto rates = rates_of(result.chains);
  result.total_service_rate_per_s = planner::total_rate_per_s(rates);
  result.mean_response_lower_s = mean_response_lower_s(rates, instance.arrival_rate_per_s);
  result.mean_response_upper_s = mean_response_upper_s(rates, instance.arrival_rate_per_s);
  // lambda < nu by both sums of nu, because they differ in the last bit.
  result.stable = instance.arrival_rate_per_s < result.total_service_rate_per_s && result.mean_response_lower_s.has_value() &&
                  result.mean_response_upper_s.has_value();
  if (!result.stable) result.mean_response_lower_s = result.mean_response_upper_s = std::nullopt;
  result.meets_max_load = instance.arrival_rate_per_s <= instance.max_load * result.total_service_rate_per_s;
  return result;
}

Result<Composition> compose(const Instance& instance, int capacity, Servers servers) {
  DisjointChains disjoint =
      gbp_cr(instance, capacity, servers == Servers::kAll ? kNever : required_scaled_rate_per_s(instance, capacity));
  if (disjoint.chains.empty()) return nothing_fits(instance, capacity);
  Composition result = compose_on(instance, std::move(disjoint.placement));
  result.capacity = capacity;
  result.disjoint_chains = std::move(disjoint.chains);
  return result;
}

Result<Composition> compose(const Instance& instance, Tuning tuning, Servers servers) {
  auto best = best_capacity(instance, tuning, servers);
  if (!best.has_value()) return nothing_fits(instance, 1);
  auto result = compose(instance, best->capacity, servers);
  if (result.ok()) result.value().considered = std::move(best->considered);
  return result;
}

}  // namespace windlass::chain
