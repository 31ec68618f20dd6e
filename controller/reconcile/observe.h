// observe builds a Snapshot from stores, runtime and signals. It reads; it decides and writes nothing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/reconcile/signals.h"
#include "controller/reconcile/state.h"
#include "controller/runtime/worker_runtime.h"
#include "controller/store/object_store.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

struct Observation {
  planner::Snapshot snapshot;  // services in order of (namespace, name)

  std::vector<const api::ModelService*> services;               // parallel to snapshot.services
  std::map<std::string, const api::AcceleratorClass*> classes;  // by name
  std::map<std::string, std::vector<Worker>> workers;           // by the owner's UID; only services listed above
  std::vector<Worker> orphans;                                  // workers whose service is being deleted or is not served
  std::vector<Worker> strays;  // workers whose service we cannot see; if it is really gone, the store ends them
  // UID of a service whose served name is taken -> the older service that holds it
  std::map<std::string, std::string> names_taken;
  std::map<std::string, GpuCapacity> capacity;  // by class
};

// From the worker's label. Without a known role it handles whole requests.
[[nodiscard]] dispatch::Role role_of(const Worker& worker);
[[nodiscard]] planner::PoolId pool_of(const Worker& worker);

// The metrics query of a service.
[[nodiscard]] ServiceQuery query_of(const api::ModelService& service);

// `workers` are the runtime's. `plan_now_s` is the snapshot's clock; it never goes back and stays near wall time. REQUIRES:
// store and runtime are synced.
[[nodiscard]] Observation observe(ObjectStore& store, const WorkerRuntime& runtime, std::vector<Worker> workers,
                                  const Signals& signals, const ControllerState& state, Instant now, double plan_now_s);

}  // namespace windlass::controller
