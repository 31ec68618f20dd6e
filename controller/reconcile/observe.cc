// See observe.h.
#include "controller/reconcile/observe.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "controller/reconcile/measured_profiles.h"
#include "controller/reconcile/spec.h"
#include "planner/policy/json.h"

namespace windlass::controller {

dispatch::Role role_of(const Worker& worker) {
  if (worker.role == dispatch::to_string(dispatch::Role::kPrefill)) return dispatch::Role::kPrefill;
  if (worker.role == dispatch::to_string(dispatch::Role::kDecode)) return dispatch::Role::kDecode;
  return dispatch::Role::kUnified;
}

planner::PoolId pool_of(const Worker& worker) { return {worker.pool, role_of(worker)}; }

namespace {

planner::WorkerState state_of(const Worker& worker) {
  if (worker.draining_since_s || worker.terminating) return planner::WorkerState::kDraining;
  if (worker.failed || worker.finished) return planner::WorkerState::kFailed;
  if (worker.unschedulable) return planner::WorkerState::kUnschedulable;
  return worker.serves_its_role() ? planner::WorkerState::kReady : planner::WorkerState::kStarting;
}

void shift(std::optional<planner::Reading>& reading, double by_s) {
  if (reading) reading->at_s += by_s;
}

planner::Worker to_planner(const Worker& worker, const Signals& signals, double to_plan_clock) {
  planner::Worker out;
  out.name = worker.name;
  out.pool = worker.pool;
  out.slot = worker.slot;
  out.role = role_of(worker);
  out.accelerator = worker.accelerator;
  out.gpus = worker.gpus;
  out.state = state_of(worker);
  out.created_s = worker.created_s;
  out.ready_s = worker.ready_s;
  if (const WorkerLoad* load = signals.worker_load(worker.uid)) {
    out.running = load->running;
    out.waiting = load->waiting;
    out.kv_use = load->kv_use;
    for (auto* reading : {&out.running, &out.waiting, &out.kv_use}) shift(*reading, to_plan_clock);
  }
  out.trouble = worker.trouble;
  out.trouble_message = worker.message;
  out.address = worker.address;
  out.spec_hash = worker.spec_hash;
  out.node = worker.node;
  for (const ChainServer& server : worker.later) out.later_nodes.push_back(server.node);
  out.node_leaving = worker.node_leaving;
  out.max_concurrency = worker.max_concurrency;
  out.can_change_role = !worker.duty_token.empty();
  return out;
}

// Converts the signals' monotonic times to the snapshot's clock.
planner::Demand on_plan_clock(planner::Demand demand, double by_s) {
  for (std::optional<planner::Reading>* reading : demand.readings()) shift(*reading, by_s);
  if (demand.last_arrival_at_s) *demand.last_arrival_at_s += by_s;
  return demand;
}

// If several services have the same served name, one keeps it: first a service whose name needs no namespace prefix, since that
// name may be anything, then the oldest, then the first by namespace and name.
std::map<std::string, std::string> names_taken(const std::vector<api::ModelService>& services) {
  std::map<std::string, const api::ModelService*> holders;
  const auto key = [](const api::ModelService& one) {
    return std::tie(one.name_with_namespace, one.metadata.creation_timestamp, one.metadata.name_space, one.metadata.name);
  };
  for (const api::ModelService& service : services) {
    if (!service.metadata.deletion_timestamp.empty()) continue;
    const api::ModelService*& holder = holders[service.served_name()];
    if (holder == nullptr || key(service) < key(*holder)) holder = &service;
  }
  std::map<std::string, std::string> taken;
  for (const api::ModelService& service : services) {
    if (!service.metadata.deletion_timestamp.empty()) continue;
    const api::ModelService& holder = *holders[service.served_name()];
    if (&holder != &service) {
      taken[service.metadata.uid] = fmt::format("{}/{}", holder.metadata.name_space, holder.metadata.name);
    }
  }
  return taken;
}

bool before(const planner::NodeState& a, const planner::NodeState& b) {
  return std::tie(a.name, a.accelerator) < std::tie(b.name, b.accelerator);
}

void look_at_classes(Observation& out, ObjectStore& store, const WorkerRuntime& runtime) {
  std::vector<ClassSelector> selectors;
  for (const api::AcceleratorClass& one : store.accelerator_classes()) {
    selectors.push_back({one.metadata.name, one.spec.resource_name, one.spec.node_selector, one.spec.tolerations});
  }
  out.capacity = runtime.capacity(selectors);
  for (const api::AcceleratorClass& one : store.accelerator_classes()) {
    out.classes[one.metadata.name] = &one;
    GpuCapacity& capacity = out.capacity[one.metadata.name];
    out.snapshot.accelerators.push_back(controller::to_planner(one, capacity));
    std::move(capacity.each_node.begin(), capacity.each_node.end(), std::back_inserter(out.snapshot.nodes));
    capacity.each_node.clear();
  }
  std::sort(out.snapshot.nodes.begin(), out.snapshot.nodes.end(), before);
}

// Collects the services that are served.
void look_at_services(Observation& out, ObjectStore& store) {
  out.names_taken = names_taken(store.model_services());
  for (const api::ModelService& service : store.model_services()) {
    const std::string& uid = service.metadata.uid;
    if (!service.metadata.deletion_timestamp.empty() || out.names_taken.contains(uid)) continue;
    out.services.push_back(&service);
    out.workers[uid];
  }
}

// The worker's owner is not in the snapshot, so to the planner others hold its GPUs.
void count_for_others(const Worker& worker, planner::Snapshot& snapshot) {
  for (planner::AcceleratorState& accelerator : snapshot.accelerators) {
    if (accelerator.spec.name == worker.accelerator) accelerator.used_by_others += worker.gpus;
  }
  for (const std::string& name : worker.nodes()) {
    planner::NodeState at;
    at.name = name;
    at.accelerator = worker.accelerator;
    const auto node = std::lower_bound(snapshot.nodes.begin(), snapshot.nodes.end(), at, before);
    if (node != snapshot.nodes.end() && !before(at, *node)) node->used_by_others += worker.gpus_of_server();
  }
}

// Assigns each worker to its service, or to the orphans or strays.
void sort_workers(Observation& out, ObjectStore& store, std::vector<Worker> workers) {
  std::set<std::string> known = store.foreign_uids();
  for (const api::ModelService& service : store.model_services()) known.insert(service.metadata.uid);
  for (Worker& worker : workers) {
    if (const auto owner = out.workers.find(worker.service_uid); owner != out.workers.end()) {
      owner->second.push_back(std::move(worker));
      continue;
    }
    if (!worker.finished && !worker.unschedulable) count_for_others(worker, out.snapshot);
    const bool unseen = !known.contains(worker.service_uid) && store.collects_garbage();
    (unseen || store.unreadable_uids().contains(worker.service_uid) ? out.strays : out.orphans).push_back(std::move(worker));
  }
}

// The clocks of one observation.
struct Times {
  Instant now;
  double to_plan_clock = 0;  // add to monotonic time
};

// One service, without measured transfers.
planner::Service planned_service(const api::ModelService& service, const std::vector<Worker>& workers, ObjectStore& store,
                                 const Signals& signals, const ControllerState& state, const Times& times) {
  std::optional<std::string> config;
  Result<planner::ModelShape> shape = [&]() -> Result<planner::ModelShape> {
    if (service.spec.model.config_map_key_ref) {
      WINDLASS_ASSIGN_OR_RETURN(
          config, store.config_map_value(service.metadata.name_space, *service.spec.model.config_map_key_ref, times.now));
    }
    return model_shape_of(service.spec, config);
  }();
  const auto priority = store.priority(service.spec.priority_class_name, times.now);
  planner::Service planned = controller::to_planner(service, shape, priority.value_or(0));
  planned.demand = on_plan_clock(signals.demand(query_of(service), times.now.monotonic_s), times.to_plan_clock);
  for (const Worker& worker : workers) planned.workers.push_back(to_planner(worker, signals, times.to_plan_clock));
  if (const auto memory = state.services.find(service.metadata.uid); memory != state.services.end()) {
    planned.memory = memory->second.policy;
    planned.last_desired = memory->second.last_desired;
    planned.starts = memory->second.starts.times();
    if (const Backoff* refusal = memory->second.backoffs.refusal(times.now.monotonic_s))
      planned.refused = planner::CreationRefusal{refusal->code, refusal->message, refusal->until_s + times.to_plan_clock};
  }
  planned.estimates = state.calibration.estimates(service);
  // After a restart, the status holds the last decision.
  if (!planned.last_desired && service.status.observed_generation > 0) {
    planned.last_desired = static_cast<int>(service.status.workers.desired);
    // An offer of an older version that cannot be read is searched again.
    if (auto offer = planner::offer_from_json(service.status.plan.offer); offer.ok()) planned.last_offer = *std::move(offer);
  }
  return planned;
}

}  // namespace

ServiceQuery query_of(const api::ModelService& service) {
  return {service.served_name(), service.spec.slo.window_s, service.spec.slo.percentile};
}

Observation observe(ObjectStore& store, const WorkerRuntime& runtime, std::vector<Worker> workers, const Signals& signals,
                    const ControllerState& state, Instant now, double plan_now_s) {
  Observation out;
  const Times times{now, plan_now_s - now.monotonic_s};
  out.snapshot.now_s = plan_now_s;
  look_at_classes(out, store, runtime);
  look_at_services(out, store);
  sort_workers(out, store, std::move(workers));
  const MeasuredProfiles measured(store.performance_profiles(), out.snapshot.accelerators);
  for (const api::ModelService* service : out.services) {
    planner::Service planned = planned_service(*service, out.workers[service->metadata.uid], store, signals, state, times);
    planned.transfers = measured.transfers(*service);
    out.snapshot.services.push_back(std::move(planned));
  }
  return out;
}

}  // namespace windlass::controller
