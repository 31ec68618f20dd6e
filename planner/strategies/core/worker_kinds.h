// Worker kinds: the space that strategies search: accelerators x tensor parallelism x pipeline stages, each with its latency
// model, and what was left out of it. Pure.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/iteration_estimate.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

struct KindSpace {
  // Degrees that do not cut the model evenly are left out; empty: all that do, up to the GPUs of a node.
  std::vector<int> tensor_parallel;
  std::vector<int> pipeline_stages = {1};  // more stages than layers are left out
  int most_gpus = 0;                       // of one worker; 0: those of a node, for each stage
  double least_kv_tokens = 1;              // what a worker must hold: its longest request
};

// What latency a kind has.
struct KindModel {
  std::shared_ptr<const planner::IterationModel> model;
  double kv_capacity_tokens = 0;
};
using KindModelOf = std::function<Result<KindModel>(const planner::AcceleratorSpec&, int tensor_parallel, int pipeline_stages)>;

struct Kinds {
  std::vector<WorkerKind> kinds;  // by accelerator, then GPUs, then tensor parallelism
  std::vector<UnfitKind> unfit;
};

// A degree that is not a divisor of the model's heads, or a model that `model_of` refuses, makes an unfit kind; an accelerator
// none of whose kinds fit is no error here.
[[nodiscard]] Kinds worker_kinds(const planner::ModelShape& shape, const std::vector<AcceleratorChoice>& accelerators,
                                 const KindSpace& space, const KindModelOf& model_of);

// Lines, as the controller predicts: from what workers of the class were measured at, else from its data sheet; no pipeline
// stages.
[[nodiscard]] KindModelOf linear_models(const planner::ModelShape& shape, std::vector<planner::WorkerEstimate> measured = {});

// Data sheets with fitted efficiencies (planner/perf/operator_model.h) and 90 % of the memory.
[[nodiscard]] KindModelOf roofline_models(const planner::ModelShape& shape);

}  // namespace windlass::search
