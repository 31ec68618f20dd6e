// observe: from stores, runtime and signals to a Snapshot. Reads, decides nothing and writes nothing.
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
  planner::Snapshot snapshot;  // services in the order of (namespace, name)

  std::vector<const api::ModelService*> services;               // beside snapshot.services
  std::map<std::string, const api::AcceleratorClass*> classes;  // by name
  std::map<std::string, std::vector<Worker>> workers;           // by the owning service's UID; services above only
  std::vector<Worker> orphans;                                  // workers whose service is known to be going or not served
  std::vector<Worker> strays;  // workers whose service we cannot see, but which the store itself ends if it is really gone
  std::map<std::string, std::string> names_taken;  // UID of a service whose served name an older one holds -> that one
  std::map<std::string, GpuCapacity> capacity;     // by class
};

// As its label says; without one, or with another word, it does all of a request.
[[nodiscard]] dispatch::Role role_of(const Worker& worker);
[[nodiscard]] planner::PoolId pool_of(const Worker& worker);

// What the service wants to know of its model.
[[nodiscard]] ServiceQuery query_of(const api::ModelService& service);

// `workers` are the runtime's. `plan_now_s` is the clock of the snapshot: it only grows and is near wall time. REQUIRES: store
// and runtime are synced.
[[nodiscard]] Observation observe(ObjectStore& store, const WorkerRuntime& runtime, std::vector<Worker> workers,
                                  const Signals& signals, const ControllerState& state, Instant now, double plan_now_s);

}  // namespace windlass::controller
