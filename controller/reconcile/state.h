// ControllerState: what the controller remembers between steps. Everything here can be lost at any time: a new leader begins
// with an empty one and comes to the same end, only more slowly (it holds before it scales down).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "controller/reconcile/backoff.h"
#include "controller/reconcile/live_calibration.h"
#include "controller/reconcile/start_log.h"
#include "planner/dispatch/routing_table.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

struct ServiceMemory {
  planner::PolicyMemory policy;
  std::optional<int> last_desired;
  std::map<planner::PoolId, planner::Pool> pools;  // as last planned: workers of a pool that is going still need a rate
  Backoffs backoffs;
  std::optional<Backoff> create_backoff;  // of these, what a person should know; none while every planned worker serves
  std::map<planner::PoolId, std::string> accepted_specs;  // hashes that the cluster has last accepted, so that it is asked once
  std::optional<double> status_written_s;                 // monotonic
  StartLog starts;
};

struct DrainMemory {
  dispatch::TableVersion version;        // the first table that said the worker drains
  std::optional<double> acknowledged_s;  // monotonic; when every live gateway was seen to hold that table
  double seen_s = 0;                     // monotonic; when this leader first saw it drain
  double inherited_s = 0;                // how long it had drained by then, as far as another machine's clock is trusted
  bool told = false;                     // people know that it is stuck
};

// An object that cannot be read, and that its condition says so.
struct ToldBroken {
  std::string message;
  bool written = false;
  double again_s = 0;  // monotonic; when a write that failed is tried again
};

struct ControllerState {
  double leading_since_s = 0;                     // monotonic
  std::map<std::string, ServiceMemory> services;  // by UID
  std::map<std::string, DrainMemory> drains;      // by the worker's UID
  std::map<std::string, double> lost_since_s;     // workers whose node does not answer, by UID; monotonic
  std::set<std::string> failing;                  // UIDs of workers that fail, and whose back-off runs
  LiveCalibration calibration;
  std::map<std::string, ToldBroken> told_broken;  // by kind, namespace and name
  // When objects' statuses may be written again, by UID; monotonic. Of those that failed lately, and of classes.
  std::map<std::string, double> status_again_s;
  // Of the observation's services, the first that the last step had no time to act on, or whose status it had none to write.
  std::size_t first_service = 0;
  std::size_t first_status = 0;
};

}  // namespace windlass::controller
