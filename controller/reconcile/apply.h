// apply turns a plan into workers: it creates missing ones, drains surplus or outdated ones, ends drained ones and removes
// finished ones. Level-based: it may run twice or after a crash with the same final result. One worker's problem never delays
// another's progress.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "controller/reconcile/observe.h"
#include "controller/reconcile/routing_publisher.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

struct Happening {  // becomes an event
  const api::ModelService* service = nullptr;
  bool warning = false;
  std::string reason;
  std::string message;
};

struct Applied {
  bool changed = false;  // workers were created, drained or ended, so the observation is outdated
  bool waiting = false;  // something is under way that needs another step soon
  std::vector<Happening> happenings;
  std::vector<std::string> errors;  // later steps retry each
};

struct ApplyContext {
  const Observation& observation;
  const planner::Plan& plan;
  WorkerRuntime& runtime;
  kube::HttpTransport& workers;  // for calls to them
  const Signals& signals;
  const std::vector<GatewayPeer>& gateways;
  dispatch::TableVersion table;  // the version in force
  Instant now;
  // Returns true once the step has taken so long that the world must be observed again before further changes; empty: never.
  std::function<bool()> time_is_up = {};
};

[[nodiscard]] Applied apply(const ApplyContext& context, ControllerState& state);

}  // namespace windlass::controller
