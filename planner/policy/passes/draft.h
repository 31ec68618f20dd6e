// Draft: everything known and decided about one service so far. FleetDraft: the same for all services, and the GPUs they share.
// The passes of make_plan() (passes.h) fill them in order; each reads what earlier passes wrote.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/policy/capacity.h"
#include "planner/policy/configuration.h"
#include "planner/policy/demand_view.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"
#include "planner/policy/target.h"

namespace windlass::planner {

struct Draft {
  const Service* service = nullptr;
  // Demand:
  PolicyMemory memory;  // the service's, with the arrivals counted up to now
  DemandView view;
  // Configuration:
  std::optional<Configuration> chosen;
  SidePools sides;  // pools next to `chosen`, whose workers `target` and `granted` count
  std::vector<Weighed> weighed;
  std::vector<Configuration> others;  // possible second classes, cheapest first
  std::vector<Configuration> as_is;   // running pools; pool.workers excludes draining workers
  // Target, and again Change if pools retire:
  Target target;
  std::vector<int> sides_wanted;  // of each side pool for target.allowed, within the service's own limits
  // Change, then SecondClass: pools of an earlier configuration that stay until the new one is ready, and workers on a second
  // class while the chosen class is full.
  std::vector<Configuration> retiring;
  // Arbitration:
  int granted = 0;
  int promised = 0;                // `granted` plus its part of the GPUs that are being drained
  std::vector<int> sides_granted;  // of each side pool
  // Pools:
  std::vector<Configuration> effective;  // what runs after this plan: the planned pools, or the current ones
  // The result for the user. Each pass adds its reasons.
  ServicePlan plan;

  // Whether this plan changes worker counts.
  [[nodiscard]] bool applies() const { return chosen && service->scaling.mode == Mode::kApply; }
  [[nodiscard]] bool is_held() const { return !chosen && service->scaling.mode == Mode::kApply; }
  [[nodiscard]] bool is_planned(const PoolId& pool) const {
    return pool == chosen->pool.id() || std::any_of(sides.pools.begin(), sides.pools.end(),
                                                    [&](const SidePool& side) { return side.configuration.pool.id() == pool; });
  }
};

struct FleetDraft {
  const Snapshot* snapshot = nullptr;
  CapacityByClass capacities;
  std::map<std::string, int> free_gpus;             // by class: neither held nor promised to anyone
  std::map<std::string, int> coming_gpus;           // by class: free for others once draining workers are gone
  std::map<std::string, FreeByNode> free_on_nodes;  // by class with known nodes, after arbitration: for further workers
  std::vector<Draft> services;                      // in the snapshot's order
  std::vector<Denied> denied;
};

// A draft before any decision.
[[nodiscard]] FleetDraft draft_of(const Snapshot& snapshot);

// By class: free GPUs plus those being drained.
[[nodiscard]] std::map<std::string, int> free_or_coming(const FleetDraft& fleet);

// After arbitration: why workers of this kind did not get GPUs. "NoRoomOnOneNode" if enough GPUs are free, but not on one node,
// otherwise "InsufficientCapacity".
[[nodiscard]] const char* shortage_of(const FleetDraft& fleet, const WorkerSpec& spec);

[[nodiscard]] int gpus_of(const Configuration& configuration);        // of all its workers together
[[nodiscard]] bool is_refused(const Service& service, double now_s);  // the cluster rejects its new workers
[[nodiscard]] Retiring sum_retiring(const Draft& draft);

// Sets the target of a service with a chosen configuration; retiring pools count against the service's own limits.
void set_target(Draft& draft, double now_s);

// The second-class configuration that a pool belongs to; null if none.
[[nodiscard]] const Configuration* second_class(const Draft& draft, const PoolId& pool);
// How many workers of the chosen configuration one of `other` replaces; 0: unknown.
[[nodiscard]] double worth_of(const Draft& draft, const Configuration& other);
// How many workers of the chosen configuration are still missing after other classes have replaced some.
[[nodiscard]] double missing_workers(const Draft& draft, int chosen_workers);
// Workers whose absence counts as a shortage. Excludes workers held only for load that is over.
[[nodiscard]] int needed_now(const Draft& draft);

}  // namespace windlass::planner
