// Builds the latency model of one kind of worker in a scenario, from the content of the files that the scenario names. Pure.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "planner/base/executor.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/operator_models.h"
#include "planner/perf/time_errors.h"
#include "planner/perf/transfer_times.h"
#include "planner/whatif/scenario.h"

namespace windlass::sim {

using ScenarioTexts = std::map<std::string, std::string>;  // by path as written in the scenario

struct WorkerModel {
  std::shared_ptr<const planner::IterationModel> model;
  planner::TimeErrors errors;
  std::shared_ptr<const planner::IterationModel> shorter = {}, longer = {};  // the ends of its interval
  double kv_capacity_tokens = 0;
  bool fitted = false;                                // from a PerformanceProfile
  std::optional<planner::MeasuredTransfer> transfer;  // from the PerformanceProfile
  std::string basis;  // for people: "profile perf_model.csv: bloom-176b, h100-80gb, TP 8; KV cache of 94208 tokens"
};

// Operator models by folder of tables and accelerator. Reading a folder takes longer than building a model from it, so whoever
// asks for several workers keeps one of these. Use from one thread at a time.
class ScenarioOperators {
 public:
  // `executor`: for reading and building, or null; borrowed.
  explicit ScenarioOperators(Executor* executor = nullptr) : executor_(executor) {}

  // `folder`: as written in the scenario; empty: no tables. Files that `texts` lacks count as empty tables. Errors name the
  // file.
  [[nodiscard]] Result<planner::OperatorModels*> models(const std::string& folder, const ScenarioTexts& texts,
                                                        const planner::AcceleratorSpec& spec);

 private:
  struct Folder {
    std::string path;
    planner::OperatorModels models;
  };
  Executor* executor_;
  std::list<Folder> folders_;
};

[[nodiscard]] inline const planner::IterationModel* at_end(const WorkerModel& worker, planner::End end) {
  return (end == planner::End::kExpected ? worker.model : end == planner::End::kShort ? worker.shorter : worker.longer).get();
}

// `source` is the scenario's name; `field` and `line` locate the worker in it, for example "cluster.pools[0]". Errors name the
// latency file, or SCENARIO:LINE and the field; one of them is a model that does not fit. `operators`: of the same texts.
[[nodiscard]] Result<WorkerModel> worker_model(const std::string& source, const ScenarioService& service,
                                               const planner::ModelShape& shape, const ScenarioTexts& texts,
                                               ScenarioOperators& operators, const planner::AcceleratorSpec& accelerator,
                                               int gpus, const std::string& field, int line);

}  // namespace windlass::sim
