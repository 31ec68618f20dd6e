// ControllerState is what the controller remembers between steps. All of it may be lost at any time: a new leader starts with
// an empty state and reaches the same result, only more slowly (it waits before scaling down).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "controller/reconcile/backoff.h"
#include "controller/reconcile/live_calibration.h"
#include "controller/reconcile/start_log.h"
#include "controller/runtime/worker_runtime.h"
#include "planner/dispatch/routing_table.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

// A launch and its Launch::known_hashes.
struct HashedLaunch {
  Launch launch;
  std::string hashes;
};

struct ServiceMemory {
  planner::PolicyMemory policy;
  std::optional<int> last_desired;
  // from the last plan; also those being removed, whose workers still need a rate
  std::map<planner::PoolId, planner::Pool> pools;
  dispatch::PolicySettings dispatch = planner::ServicePlan{}.dispatch;  // from the last plan
  Backoffs backoffs;
  std::optional<Backoff> create_backoff;  // the one to report; none while every planned worker is ready
  // hashes that the cluster accepted last, so that it is asked only once
  std::map<planner::PoolId, std::string> accepted_specs;
  std::map<planner::PoolId, HashedLaunch> hashed;  // of the last step: hashing costs more than comparing
  std::optional<double> status_written_s;          // monotonic
  StartLog starts;
};

struct DrainMemory {
  dispatch::TableVersion version;        // the first table that marks the worker as draining
  std::optional<double> acknowledged_s;  // monotonic; when every live gateway was seen to have that table
  double seen_s = 0;                     // monotonic; when this leader first saw it draining
  double inherited_s = 0;                // how long it had drained before that, as far as the other machine's clock is trusted
  bool told = false;                     // the event about an overdue drain has been written
};

// An object that cannot be read, and whether its condition has been written.
struct ToldBroken {
  std::string message;
  bool written = false;
  double again_s = 0;  // monotonic; time to retry a failed write
};

struct ControllerState {
  double leading_since_s = 0;                     // monotonic
  std::map<std::string, ServiceMemory> services;  // by UID
  std::map<std::string, DrainMemory> drains;      // by the worker's UID
  std::map<std::string, double> lost_since_s;     // workers whose node does not answer, by UID; monotonic
  std::set<std::string> failing;                  // UIDs of failing workers whose back-off is running
  LiveCalibration calibration;
  std::map<std::string, ToldBroken> told_broken;  // by kind, namespace and name
  // When a status may be written again, by UID; monotonic. For recently failed writes, and for classes.
  std::map<std::string, double> status_again_s;
  // Index of the first service that the last step had no time to act on, or whose status it had no time to write.
  std::size_t first_service = 0;
  std::size_t first_status = 0;
};

}  // namespace windlass::controller
