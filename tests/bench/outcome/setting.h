// The outcome experiment's setting: the model, its workers and objectives, and the workloads; the same for every rule.
//
// Llama 3 70B on H100s, one GPU configuration: that which Windlass' own search takes. Iteration times are the planner's linear
// model of it, so that no rule is hurt by a wrong model; engines batch as vLLM's since its version 1. Workers take kStartS from
// their creation to their first readiness. The gateway is the same for all: JFFC, with the slots of a worker that the plan for
// the workload's mean lengths has. The cluster has twice the GPUs that the plan for the busiest minute has.
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
  std::string title;  // for the table
  std::vector<workload::Request> requests;
  double end_s = 0;          // of the arrivals
  planner::Lengths lengths;  // means

  [[nodiscard]] double rate_per_s() const { return static_cast<double>(requests.size()) / end_s; }
};

// The two Azure traces of `data`/traces (each laid over copies of itself, shifted by the seed), a day, and a step. The policy's
// constants were chosen on those of kSeed; another seed gives traffic that they have not seen. Error: a trace that cannot be
// read.
[[nodiscard]] Result<std::vector<OutcomeWorkload>> outcome_workloads(const std::string& data, std::uint64_t seed = kSeed);

// What a workload is served by.
class OutcomeSetting {
 public:
  [[nodiscard]] static Result<OutcomeSetting> make(const OutcomeWorkload& workload);

  planner::Service service;  // as the controller has it of a ModelService
  planner::AcceleratorState accelerator;
  planner::LinearCoefficients coefficients;
  std::shared_ptr<const planner::LinearIterationModel> model;
  sim::ServingPool pool;    // of the chosen configuration
  int slots = 0;            // of a worker at the workload's mean lengths
  double worker_per_s = 0;  // requests that such a worker serves
  int first_workers = 0;    // that are ready when the run begins
  int most_workers = 0;

  [[nodiscard]] sim::ServingService serving() const;  // with the first workers
};

}  // namespace windlass::bench
