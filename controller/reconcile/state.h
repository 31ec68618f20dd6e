// ControllerState: what the controller remembers between steps. Everything here can be lost at any time: a new leader begins
// with an empty one and comes to the same end, only more slowly (it holds before it scales down).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "planner/dispatch/routing_table.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

// Creating workers for one service failed: when to try again, and why.
struct Backoff {
  double until_s = 0;  // monotonic
  double delay_s = 0;  // doubles with every failure
  std::string code;    // CamelCase
  std::string message;
};

struct ServiceMemory {
  planner::PolicyMemory policy;
  std::optional<int> last_desired;
  std::map<std::string, planner::PoolPlan>
      pools;  // as last planned, by name: workers of a pool that is going still need a rate
  std::optional<Backoff> create_backoff;
  double status_written_s = 0;  // monotonic
};

struct DrainMemory {
  dispatch::TableVersion version;        // the first table that said the worker drains
  std::optional<double> acknowledged_s;  // monotonic; when every live gateway was seen to hold that table
};

struct ControllerState {
  double leading_since_s = 0;                     // monotonic
  std::map<std::string, ServiceMemory> services;  // by UID
  std::map<std::string, DrainMemory> drains;      // by the worker's UID
};

}  // namespace windlass::controller
