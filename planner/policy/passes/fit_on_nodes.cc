// See fit_on_nodes.h.
#include "planner/policy/passes/fit_on_nodes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>

#include "planner/policy/trouble.h"

namespace windlass::planner {
namespace {

constexpr int kAny = std::numeric_limits<int>::max();

// The order in which arbitration serves (arbitration.h): every service's floor first, then everything else; each by priority. A
// smaller rank takes GPUs from a larger one.
using Rank = std::tuple<int, std::int64_t>;
Rank rank_of_floor(int priority) { return {1, -std::int64_t{priority}}; }
Rank rank_of_rest(int priority) { return {2, -std::int64_t{priority}}; }
constexpr Rank kNeverTaken{0, 0};

// A worker that keeps its GPUs, unless a smaller rank takes them.
struct Fixed {
  const Worker* worker = nullptr;
  Rank rank = kNeverTaken;
};

// Workers of a pool that stay, next to which the claims grow, and how sure they are.
struct Stay {
  int workers = 0;
  Rank rank = kNeverTaken;
};

Stay stay_of(const Draft& draft, const PoolId& pool, int existing) {
  if (!draft.applies()) return {kAny};
  const Service& service = *draft.service;
  const auto of_claim = [&](int workers, int floor) {
    return Stay{workers, existing <= floor ? rank_of_floor(service.priority) : rank_of_rest(service.priority)};
  };
  if (pool == draft.chosen->pool.id()) return of_claim(draft.target.allowed, draft.target.floor);
  for (std::size_t i = 0; i < draft.sides.pools.size(); ++i) {
    if (pool == draft.sides.pools[i].configuration.pool.id())
      return of_claim(draft.sides_wanted[i], service.scaling.min_workers - draft.target.floor);
  }
  const auto retiring = std::find_if(draft.retiring.begin(), draft.retiring.end(),
                                     [&](const Configuration& one) { return one.pool.id() == pool; });
  if (retiring == draft.retiring.end()) return {};
  return second_class(draft, pool) != nullptr ? of_claim(retiring->pool.workers, 0) : Stay{retiring->pool.workers};
}

// By rank; those without a node come after the others of their rank, larger ones first.
std::vector<Fixed> fixed_workers(const FleetDraft& fleet, bool drained) {
  std::vector<Fixed> fixed;
  for (const Draft& draft : fleet.services) {
    std::map<PoolId, int> existing;
    for (const Worker& worker : draft.service->workers) existing[worker.pool_id()] += holds_gpus(worker) ? 1 : 0;
    std::map<PoolId, Stay> stays;
    for (const auto& [pool, workers] : existing) stays[pool] = stay_of(draft, pool, workers);
    for (const Worker& worker : draft.service->workers) {
      const Stay& stay = stays[worker.pool_id()];
      if (worker.state == WorkerState::kDraining) {
        if (!drained) fixed.push_back({&worker});
      } else if (holds_gpus(worker) && stay.workers >= existing[worker.pool_id()]) {
        fixed.push_back({&worker, stay.rank});
      }
    }
  }
  std::stable_sort(fixed.begin(), fixed.end(), [](const Fixed& a, const Fixed& b) {
    const auto key = [](const Fixed& of) {
      return std::tuple(of.rank, of.worker->node.empty(), -of.worker->split().tensor_parallel);
    };
    return key(a) < key(b);
  });
  return fixed;
}

// Workers that a claim would have beyond those that it keeps.
struct Growth {
  Rank rank;
  std::size_t claim = 0;
  int workers = 0;
};

// By rank, then larger workers first.
std::vector<Growth> growth_of(const std::vector<Claim>& claims, const std::vector<int>& workers) {
  std::vector<Growth> all;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const Claim& claim = claims[i];
    const int growth = std::max(0, workers[i] - claim.keep);
    const int of_floor = std::clamp(claim.floor - claim.keep, 0, growth);
    all.push_back({rank_of_floor(claim.priority), i, of_floor});
    all.push_back({rank_of_rest(claim.priority), i, growth - of_floor});
  }
  std::stable_sort(all.begin(), all.end(), [&](const Growth& a, const Growth& b) {
    const auto key = [&](const Growth& of) { return std::tuple(of.rank, -claims[of.claim].split.tensor_parallel); };
    return key(a) < key(b);
  });
  return all;
}

}  // namespace

NodeFit fit_on_nodes(const FleetDraft& fleet, const std::vector<Claim>& claims, const std::vector<int>& workers, bool drained) {
  NodeFit fit{std::vector<int>(claims.size(), kAny), {}};
  for (const auto& [name, capacity] : fleet.capacities) {
    if (!capacity.nodes) continue;
    FreeByNode& free = fit.free[name];
    for (const auto& [node, room] : *capacity.nodes) free[node] = room.limit;
  }
  if (fit.free.empty()) return fit;

  const std::vector<Fixed> fixed = fixed_workers(fleet, drained);
  auto next = fixed.begin();
  const auto take_up_to = [&](const Rank& rank) {
    for (; next != fixed.end() && next->rank <= rank; ++next) {
      const auto nodes = fit.free.find(next->worker->accelerator);
      if (nodes != fit.free.end()) take_its_nodes(*next->worker, nodes->second);
    }
  };
  std::vector<int> placed(claims.size(), 0);
  std::map<std::string, int> full_for;  // by class: no node has this many GPUs left
  for (const Growth& growth : growth_of(claims, workers)) {
    const Claim& claim = claims[growth.claim];
    take_up_to(growth.rank);
    const auto nodes = fit.free.find(claim.accelerator);
    if (nodes == fit.free.end()) continue;
    const int here = place_workers(nodes->second, claim.split, growth.workers);
    placed[growth.claim] += here;
    const bool lacks_nodes = here < growth.workers;
    if (claim.split.stages > 1) {  // the servers that are free are too few, but smaller chains and other workers may fit
      if (lacks_nodes) fit.most[growth.claim] = claim.keep + placed[growth.claim];
      continue;
    }
    int& full = full_for.try_emplace(claim.accelerator, kAny).first->second;
    if (lacks_nodes) full = std::min(full, claim.gpus_per_worker());
    if (claim.gpus_per_worker() >= full) fit.most[growth.claim] = claim.keep + placed[growth.claim];
  }
  take_up_to({kAny, 0});
  return fit;
}

}  // namespace windlass::planner
