// The outcome experiment's setting: the model, its workers and objectives, and the workloads; the same for every rule.
//
// Llama 3 70B on H100s in one GPU configuration, the one that Windlass' own search chooses. Iteration times are the planner's
// linear model of it, so that no rule suffers from a wrong model; engines batch like vLLM since version 1. Workers need kStartS
// from creation to ready. The gateway is the same for all: JFFC, with the slots per worker of the plan for the workload's mean
// lengths. The cluster has twice the GPUs of the plan for the busiest minute.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/perf/linear_iteration_model.h"
#include "planner/perf/linear_model.h"
#include "planner/policy/snapshot.h"
#include "planner/sim/serving_options.h"
#include "planner/sizing/worker_config.h"
#include "planner/workload/request_source.h"

namespace windlass::bench {

inline constexpr double kStartS = 120;
inline constexpr double kAttainment = 0.99;
inline constexpr std::uint64_t kSeed = 1;

struct OutcomeWorkload {
  std::string name;   // "conversation"
  std::string title;  // shown in the table
  std::vector<workload::Request> requests;
  double end_s = 0;          // of the arrivals
  planner::Lengths lengths;  // means

  [[nodiscard]] double rate_per_s() const { return static_cast<double>(requests.size()) / end_s; }
};

// The two Azure traces of `data`/traces (each overlaid with shifted copies of itself, by the seed), a day, and a step. The
// policy's constants were tuned on kSeed; other seeds give traffic that it has not seen. Fails if a trace cannot be read.
[[nodiscard]] Result<std::vector<OutcomeWorkload>> outcome_workloads(const std::string& data, std::uint64_t seed = kSeed);

// How a workload is served.
class OutcomeSetting {
 public:
  [[nodiscard]] static Result<OutcomeSetting> make(const OutcomeWorkload& workload);

  planner::Service service;  // as the controller derives it from a ModelService
  planner::AcceleratorState accelerator;
  planner::LinearCoefficients coefficients;
  std::shared_ptr<const planner::LinearIterationModel> model;
  sim::ServingPool pool;    // with the chosen configuration
  int slots = 0;            // per worker, at the workload's mean lengths
  double worker_per_s = 0;  // requests per second of one worker
  int first_workers = 0;    // ready at the start of the run
  int max_workers = 0;

  [[nodiscard]] sim::ServingService serving() const;  // with the first workers
};

}  // namespace windlass::bench
