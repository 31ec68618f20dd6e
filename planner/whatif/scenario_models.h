// The latency model of one kind of worker in a scenario, from the texts of the files that the scenario names. Pure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "planner/perf/iteration_model.h"
#include "planner/perf/transfer_times.h"
#include "planner/whatif/scenario.h"

namespace windlass::sim {

using ScenarioTexts = std::map<std::string, std::string>;  // by path as in the scenario

struct WorkerModel {
  std::shared_ptr<const planner::IterationModel> model;
  double kv_capacity_tokens = 0;
  bool fitted = false;                                // from a PerformanceProfile
  std::optional<planner::MeasuredTransfer> transfer;  // as the PerformanceProfile says
  std::string basis;  // for people: "profile perf_model.csv: bloom-176b, h100-80gb, TP 8; KV cache of 94208 tokens"
};

// `source` is the scenario's; `field` and `line` say who asks: "cluster.pools[0]". Errors name the latency file, or
// SCENARIO:LINE and the field; among them a model that does not fit.
[[nodiscard]] Result<WorkerModel> worker_model(const std::string& source, const ScenarioService& service,
                                               const planner::ModelShape& shape, const ScenarioTexts& texts,
                                               const planner::AcceleratorSpec& accelerator, int gpus, const std::string& field,
                                               int line);

}  // namespace windlass::sim
