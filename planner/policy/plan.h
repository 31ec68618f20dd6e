// Plan: what should be, as plain data, with its reasons. make_plan makes it, the reconciler acts on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/deployment/deployment.h"
#include "planner/dispatch/routing_table.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// Why something was decided. `code` is CamelCase and stable, `message` is for a person, `inputs` are the figures behind it.
struct Reason {
  std::string code;
  std::string message;
  std::map<std::string, std::string> inputs;
  std::string pass = {};  // of make_plan() that decided it (passes/passes.h): "Target"

  bool operator==(const Reason&) const = default;
};

// At the demand that was planned for.
struct Predicted {
  double ttft_s = 0;          // at slo.percentile, waiting included; infinite when the demand is beyond requests_per_s
  double tpot_s = 0;          // at a full batch
  double requests_per_s = 0;  // what the planned workers can serve
  double utilisation = 0;     // demand / requests_per_s; 0 without workers
  double cost_per_hour = 0;
  int gpus = 0;

  bool operator==(const Predicted&) const = default;
};

enum class Truth { kTrue, kFalse, kUnknown };

// What a condition should say. `reason` is CamelCase.
struct Hint {
  Truth status = Truth::kUnknown;
  std::string reason;
  std::string message;

  bool operator==(const Hint&) const = default;
};

// What the arrivals are expected to be when a worker that is started now serves.
struct DemandForecast {
  std::string method;  // as workload::to_string(ForecastMethod) has it
  double horizon_s = 0;
  double requests_per_s = 0;  // expected; what the plan provides for may be more
  double relative_error = 0;  // of this method's past forecasts, mean absolute, as a share of what came
  int judged = 0;             // forecasts behind that error

  bool operator==(const DemandForecast&) const = default;
};

// A configuration that was weighed, and why it was not taken ("" for the one that was).
struct Considered {
  WorkerSpec spec;
  int workers = 0;  // that the demand would need
  double cost_per_hour = 0;
  double tpot_s = 0;
  double ttft_s = 0;
  std::string rejected;  // for a person

  bool operator==(const Considered&) const = default;
};

struct ServicePlan {
  ServiceId id;
  std::int64_t generation = 0;  // of the spec that was read
  Family strategy = Family::kReplicated;
  std::vector<Pool> pools;              // a pool that is not listed has no workers. In mode Recommend and Paused: as things are
  std::vector<Pool> recommended_pools;  // mode Recommend and Paused: what Apply would do; else empty
  Predicted predicted;
  std::optional<DemandForecast> forecast;
  std::vector<Considered> considered;  // cheapest first
  std::vector<Reason> reasons;
  Hint feasible;        // condition Feasible
  Hint able_to_scale;   // condition AbleToScale
  Hint metrics_fresh;   // condition MetricsFresh
  Hint slo_met;         // condition SLOMet
  PolicyMemory memory;  // hand back in the next snapshot

  // Sum over the pools.
  [[nodiscard]] int desired_workers() const;

  bool operator==(const ServicePlan&) const = default;
};

struct Denied {
  ServiceId id;
  std::string code;
  std::string message;
  std::string accelerator;  // empty when it is not about one
  int wanted_workers = 0;
  int granted_workers = 0;

  bool operator==(const Denied&) const = default;
};

struct Plan {
  double at_s = 0;                    // the snapshot's now
  std::vector<ServicePlan> services;  // in the snapshot's order
  std::vector<Denied> denied;

  bool operator==(const Plan&) const = default;
};

const char* to_string(Family strategy);    // "Auto", "Replicated", "Disaggregated", "Chained"
const char* to_string(Mode mode);          // "Apply", "Recommend", "Paused"
const char* to_string(WorkerState state);  // "Starting", "Ready", "Draining", "Failed", "Unschedulable"
const char* to_string(
    WorkerTrouble trouble);  // "None", "Unschedulable", "ImagePull", "CrashLoop", "OutOfMemory", "NodeLost", "Failed"
const char* to_string(CapacityMode mode);    // "Observed", "Elastic"
const char* to_string(Direction direction);  // "Up", "Down"
const char* to_string(Truth truth);          // "True", "False", "Unknown"

}  // namespace windlass::planner
