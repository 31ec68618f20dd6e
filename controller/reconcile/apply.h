// apply: from a plan to workers. Creates what is missing, drains what is too much or outdated, ends what has drained, lets go
// of what has ended. Level-based: it may run twice or after a crash and comes to the same end. One worker's trouble never holds
// up another's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "controller/reconcile/observe.h"
#include "controller/reconcile/routing_publisher.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

struct Happening {  // for an event
  const api::ModelService* service = nullptr;
  bool warning = false;
  std::string reason;
  std::string message;
};

struct Applied {
  bool changed = false;  // workers were created, drained or ended: the observation is out of date
  bool waiting = false;  // something is on its way that will need a further step soon
  std::vector<Happening> happenings;
  std::vector<std::string> errors;  // each is tried again by a later step
};

struct ApplyContext {
  const Observation& observation;
  const planner::Plan& plan;
  WorkerRuntime& runtime;
  const Signals& signals;
  const std::vector<GatewayPeer>& gateways;
  dispatch::TableVersion table;  // in force
  Instant now;
  // The step has taken so long that the world must be looked at again before more is changed; empty: it never has.
  std::function<bool()> time_is_up = {};
};

[[nodiscard]] Applied apply(const ApplyContext& context, ControllerState& state);

}  // namespace windlass::controller
