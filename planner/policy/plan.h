// Plan: the desired state as plain data, with reasons. make_plan creates it and the reconciler applies it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/deployment/deployment.h"
#include "planner/dispatch/routing_table.h"
#include "planner/perf/time_errors.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// Why something was decided. `code` is CamelCase and stable, `message` is for people, `inputs` are the figures behind it.
struct Reason {
  std::string code;
  std::string message;
  std::map<std::string, std::string> inputs;
  std::string pass = {};  // pass of make_plan() that decided it (passes/passes.h), for example "Target"

  bool operator==(const Reason&) const = default;
};

// An end of the 90 % interval of a prediction.
struct PredictedEnd {
  double ttft_s = 0, tpot_s = 0, requests_per_s = 0;

  bool operator==(const PredictedEnd&) const = default;
};

// Predicted behaviour at the planned demand. The interval is that of the workers' times; demand is taken as planned.
struct Predicted {
  double ttft_s = 0;          // at slo.percentile, including waiting; infinite if demand exceeds requests_per_s
  double tpot_s = 0;          // at a full batch
  double requests_per_s = 0;  // that the planned workers serve within the objective
  double utilisation = 0;     // demand / requests_per_s; 0 without workers
  double cost_per_hour = 0;
  int gpus = 0;
  PredictedEnd low, high;  // of each figure: low.requests_per_s goes with high.tpot_s
  Provenance from = Provenance::kDataSheet;

  bool operator==(const Predicted&) const = default;
};

enum class Truth { kTrue, kFalse, kUnknown };

// Content of a condition. `reason` is CamelCase.
struct Hint {
  Truth status = Truth::kUnknown;
  std::string reason;
  std::string message;

  bool operator==(const Hint&) const = default;
};

// Expected arrivals when a worker started now begins to serve.
struct DemandForecast {
  std::string method;  // a name from workload::to_string(ForecastMethod)
  double horizon_s = 0;
  double requests_per_s = 0;  // expectation; the plan may provide for more
  double relative_error = 0;  // mean absolute error of this method's past forecasts, relative to the actual arrivals
  int judged = 0;             // number of forecasts behind that error

  bool operator==(const DemandForecast&) const = default;
};

// A configuration that was compared, and why it was rejected ("" for the chosen one).
struct Considered {
  WorkerSpec spec;
  int workers = 0;  // number that the demand would need
  double cost_per_hour = 0;
  double tpot_s = 0;
  double ttft_s = 0;
  std::string rejected;  // for people

  bool operator==(const Considered&) const = default;
};

// Ready workers that take another role while they run, instead of being ended while others start. Pools with one name have the
// same WorkerSpec.
struct RoleChange {
  std::string pool;
  dispatch::Role from = dispatch::Role::kPrefill, to = dispatch::Role::kDecode;
  int workers = 0;
  std::string why;  // for people

  bool operator==(const RoleChange&) const = default;
};

struct ServicePlan {
  ServiceId id;
  std::int64_t generation = 0;  // generation of the spec that was read
  Family strategy = Family::kReplicated;
  std::vector<Pool> pools;               // a pool that is not listed has no workers. In modes Recommend and Paused: the current
                                         // state
  std::vector<Pool> recommended_pools;   // in modes Recommend and Paused: what Apply would do; otherwise empty
  std::vector<RoleChange> role_changes;  // part of what `pools` asks for
  // How gateways choose workers; in modes Recommend and Paused: as they do now.
  dispatch::PolicySettings dispatch{.policy = dispatch::kDefaultPolicy};
  Predicted predicted;
  std::optional<DemandForecast> forecast;
  std::vector<Considered> considered;      // cheapest first
  std::vector<StrategyAnswer> strategies;  // what each one offered, and why it lost
  std::vector<Reason> reasons;
  Hint feasible;        // condition Feasible
  Hint able_to_scale;   // condition AbleToScale
  Hint metrics_fresh;   // condition MetricsFresh
  Hint slo_met;         // condition SLOMet
  Hint times_known;     // condition TimesKnown
  PolicyMemory memory;  // to pass back in the next snapshot

  // Sum over all pools.
  [[nodiscard]] int desired_workers() const;

  bool operator==(const ServicePlan&) const = default;
};

struct Denied {
  ServiceId id;
  std::string code;
  std::string message;
  std::string accelerator;  // empty if the denial concerns no accelerator
  int wanted_workers = 0;
  int granted_workers = 0;

  bool operator==(const Denied&) const = default;
};

struct Plan {
  double at_s = 0;                    // the snapshot's now_s
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
