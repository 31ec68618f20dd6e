// The "Advice" pass: computes what the plan would be for services in mode Recommend or Paused. See passes.h.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "planner/policy/passes/claims.h"
#include "planner/policy/passes/passes.h"
#include "planner/policy/trouble.h"

namespace windlass::planner {
namespace {

// What each node would have left for growth: what is free, and what the service's workers that would go hold. Of a pool that
// would shrink, any worker may be the one that goes.
std::map<std::string, FreeByNode> free_for_growth(const FleetDraft& fleet, const Draft& draft,
                                                  const std::map<PoolId, int>& would) {
  std::map<std::string, FreeByNode> free = fleet.free_on_nodes;
  for (const Worker& worker : draft.service->workers) {
    const auto pool = would.find(worker.pool_id());
    const bool stays = pool != would.end() && pool->second >= count_existing(*draft.service, worker.pool_id());
    if (stays || !holds_gpus(worker)) continue;
    const auto nodes = free.find(worker.accelerator);
    if (nodes != free.end()) give_its_nodes_back(worker, nodes->second);
  }
  return free;
}

}  // namespace

void advise_without_acting(FleetDraft& fleet) {
  const double now_s = fleet.snapshot->now_s;
  for (Draft& draft : fleet.services) {
    if (draft.applies() || !draft.chosen) continue;
    std::map<std::string, int> left = fleet.free_gpus;
    for (const Configuration& pool : draft.as_is) left[pool.pool.spec.accelerator] += gpus_of(pool);
    std::vector<Claim> own = {claim_of(draft, now_s)};
    std::vector<PoolId> pools = {draft.chosen->pool.id()};
    for (std::size_t i = 0; i < draft.sides.pools.size(); ++i) {
      own.push_back(side_claim_of(draft, i, now_s));
      pools.push_back(draft.sides.pools[i].configuration.pool.id());
    }
    std::vector<int> would = arbitrate(own, left);
    std::map<PoolId, int> of_pools;
    for (std::size_t i = 0; i < own.size(); ++i) of_pools[pools[i]] = would[i];
    const auto grows = [&](std::size_t i) { return would[i] > own[i].keep; };
    std::map<std::string, FreeByNode> free;  // a copy of all nodes, so only if needed
    for (std::size_t i = 0; i < own.size() && free.empty(); ++i) {
      if (grows(i)) free = free_for_growth(fleet, draft, of_pools);
    }
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto nodes = free.find(own[i].accelerator);
      const int growth = would[i] - own[i].keep;
      if (nodes == free.end() || !grows(i)) continue;
      would[i] = own[i].keep + place_workers(nodes->second, own[i].split, growth);
    }
    draft.granted = would[0];
    draft.sides_granted.assign(would.begin() + 1, would.end());
  }
}

}  // namespace windlass::planner
