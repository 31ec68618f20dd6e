// Draft: what is known and decided of one service so far. FleetDraft: of all, and of the GPUs that they share. The passes of
// make_plan() (passes.h) fill them in, in order; each reads what those before it wrote.
#pragma once

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
  std::optional<PrefillSide> prefill;  // workers next to those of `chosen`, which are what `target` and `granted` count
  std::vector<Weighed> weighed;
  std::vector<Configuration> others;  // what may serve on a second class, the cheapest first
  std::vector<Configuration> as_is;   // what runs now, pool by pool; pool.workers counts all but draining workers
  // Target, and again Change where pools retire:
  Target target;
  int prefill_wanted = 0;  // for target.allowed, inside the service's own limits
  // Change, then SecondClass: pools of an earlier configuration that stay until the new one is ready, and what runs on a second
  // class while the chosen one is full.
  std::vector<Configuration> retiring;
  // Arbitration:
  int granted = 0;
  int promised = 0;  // granted, and what it gets of GPUs that are coming free
  int prefill_granted = 0;
  // Pools:
  std::vector<Configuration> effective;  // what the plan leaves running: the planned pools, or what runs now
  // What the user gets. Each pass adds its reasons.
  ServicePlan plan;

  // Whether this plan changes worker counts. Otherwise things stay as they are.
  [[nodiscard]] bool applies() const { return chosen && service->scaling.mode == Mode::kApply; }
  [[nodiscard]] bool is_held() const { return !chosen && service->scaling.mode == Mode::kApply; }
  [[nodiscard]] bool is_planned(const PoolId& pool) const {
    return pool == chosen->pool.id() || (prefill && pool == prefill->configuration.pool.id());
  }
};

struct FleetDraft {
  const Snapshot* snapshot = nullptr;
  CapacityByClass capacities;
  std::map<std::string, int> free_gpus;    // by class, that nobody holds and nobody was promised
  std::map<std::string, int> coming_gpus;  // by class, free for others once workers that drain are gone
  std::vector<Draft> services;             // in the snapshot's order
  std::vector<Denied> denied;
};

// Nothing is decided yet.
[[nodiscard]] FleetDraft draft_of(const Snapshot& snapshot);

// By class: those that are free, and those that are coming free.
[[nodiscard]] std::map<std::string, int> free_or_coming(const FleetDraft& fleet);

[[nodiscard]] int gpus_of(const Configuration& configuration);  // of all its workers
[[nodiscard]] int count_existing(const Service& service, const PoolId& pool);
[[nodiscard]] bool is_refused(const Service& service, double now_s);  // the cluster takes no new workers of it
[[nodiscard]] Retiring sum_retiring(const Draft& draft);

// Of a service with a chosen configuration: the target, with what retiring pools take of the service's own limits.
void set_target(Draft& draft, double now_s);

// The configuration of a second class that a pool is of; null: it is of none.
[[nodiscard]] const Configuration* second_class(const Draft& draft, const PoolId& pool);
// Workers of the chosen configuration that one of this serves as much as; 0: it is not known.
[[nodiscard]] double worth_of(const Draft& draft, const Configuration& other);
// Workers of the chosen configuration that are neither among these nor made up for.
[[nodiscard]] double missing_workers(const Draft& draft, int chosen_workers);
// Workers whose lack is a shortage. Those that are only held after a load that is over are missed by nobody.
[[nodiscard]] int needed_now(const Draft& draft);

}  // namespace windlass::planner
