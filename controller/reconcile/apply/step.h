// The state that the parts of apply share: ApplyStep is one step over all services, ServiceStep the part for one service. Each
// part (create, drain, finish, ...) has its own .cc file, which opens with what that part decides. apply.cc owns the state and
// calls the parts in order.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/reconcile/apply.h"

namespace windlass::controller {

inline constexpr double kQuietGraceS = 30;  // for a worker without requests; it ends immediately unless that was wrong

struct ApplyStep {
  const ApplyContext& context;
  ControllerState& state;
  Applied applied = {};
  bool mass_loss = false;  // most workers' nodes seem to be lost

  [[nodiscard]] double now_s() const { return context.now.monotonic_s; }

  // Ten thousand writes take minutes, during which the gateways would not learn of ready workers.
  [[nodiscard]] bool out_of_time() const { return context.time_is_up && context.time_is_up(); }

  // Whether the cluster accepts writes now. Later steps do the rest.
  [[nodiscard]] bool may_write() {
    if (now_s() >= context.runtime.not_before_s() && !out_of_time()) return true;
    applied.waiting = true;
    return false;
  }

  // Records the result of an action on a worker. A worker that is already gone is not an error.
  void note(const Result<void>& result, const std::string& what) {
    if (result.ok()) {
      applied.changed = true;
    } else if (result.error().code != ErrorCode::kNotFound) {
      applied.errors.push_back(result.error().within(what).message);
    }
  }
};

// A worker requested in this step; the observation does not contain it yet.
struct AskedFor {
  std::string pool;
  int slot = 0;
  std::string accelerator;
  planner::GpuSplit split;
};

struct ServiceStep {
  const api::ModelService& service;
  const planner::ServicePlan& plan;
  const std::vector<Worker>& workers;
  ServiceMemory& memory;
  const planner::Service& observed;
  std::vector<const Worker*> active = {};  // those that should stay and whose node answers
  std::vector<const Worker*> lost = {};    // those whose node does not answer
  std::set<const Worker*> current = {};    // the active ones that match the plan
  int ready_current = 0;                   // the ready ones of these
  bool wants_room = false;                 // a new worker has no room before an outdated one goes
  std::vector<AskedFor> asked_for = {};

  // Of the model; 0: unknown.
  [[nodiscard]] int layers() const { return observed.shape ? observed.shape->layers : 0; }
};

// A pool of the plan, and the specification of its workers.
struct Wanted {
  const planner::Pool& pool;
  const api::AcceleratorClass& accelerator;
  Launch spec;         // for slot 0
  std::string hashes;  // Launch::known_hashes

  [[nodiscard]] bool is(const Worker& worker) const {
    return pool_of(worker) == pool.id() && Launch::matches(worker.spec_hash, hashes);
  }
};

// give_up.cc
void look_for_lost_nodes(ApplyStep& step);
void give_up(ApplyStep& step, const api::ModelService& service, const Worker& worker);
void give_up_long_lost(ApplyStep& step, const ServiceStep& own);

// finish.cc
void finish(ApplyStep& step, const api::ModelService& service, const Worker& worker);
// How long a worker has drained that was marked at `since_s` (wall clock), or that long less at least a minute if another
// leader marked it.
[[nodiscard]] double drained_for_s(ApplyStep& step, const Worker& worker, double since_s, double drain_timeout_s);
// Whether every gateway knows that the worker drains, and neither they nor the worker have shown a request in flight since.
// REQUIRES: drained_for_s() was called for it.
[[nodiscard]] bool is_quiet(ApplyStep& step, const Worker& worker);
void let_go(ApplyStep& step, const Worker& worker);
void release(ApplyStep& step, const Worker& worker);

// create.cc
[[nodiscard]] bool accepted(ApplyStep& step, ServiceStep& own, const Wanted& wanted);
void create_missing(ApplyStep& step, ServiceStep& own, const Wanted& wanted, const std::vector<const Worker*>& mine);

// room.cc
[[nodiscard]] bool inside_budget(const ApplyStep& step, const ServiceStep& own, const planner::Pool& pool, int more);
[[nodiscard]] bool has_room(const ApplyStep& step, const ServiceStep& own, const Wanted& wanted, int more);

// change_roles.cc
// True: workers were marked, or there was no time for it, so the world must be observed again before workers are created or
// drained.
[[nodiscard]] bool begin_role_changes(ApplyStep& step, const ServiceStep& own, const std::vector<Wanted>& pools);
void go_on_changing_role(ApplyStep& step, const api::ModelService& service, const Worker& worker);

// drain.cc
// Order: the least useful first.
void sort_for_draining(const ApplyStep& step, std::vector<const Worker*>& workers);
void drain_some(ApplyStep& step, const api::ModelService& service, std::vector<const Worker*> candidates, int count);

// replace.cc
void replace_failing(ApplyStep& step, ServiceStep& own);
void replace_outdated(ApplyStep& step, const ServiceStep& own);

// budget.cc
[[nodiscard]] DisruptionBudget disruption_budget(const ServiceStep& own);

}  // namespace windlass::controller
