// Worker kinds: the space that strategies search, accelerators x tensor parallelism x pipeline stages. Each kind has its
// latency model; kinds that do not fit are listed separately. Pure.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/iteration_estimate.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

struct KindSpace {
  // Degrees that do not divide the model evenly are skipped; empty: all that do, up to the GPUs of a node.
  std::vector<int> tensor_parallel;
  std::vector<int> pipeline_stages = {1};  // more stages than layers are skipped
  int max_gpus = 0;                        // per worker; 0: those of a node, for each stage
  double least_kv_tokens = 1;              // a worker must hold this: its longest request
};

// The latency model of a kind.
struct KindModel {
  std::shared_ptr<const planner::IterationModel> model;
  double kv_capacity_tokens = 0;
  planner::TimeErrors errors = {};
};
using KindModelOf = std::function<Result<KindModel>(const planner::AcceleratorSpec&, int tensor_parallel, int pipeline_stages)>;

struct Kinds {
  std::vector<WorkerKind> kinds;  // by accelerator, then GPUs, then tensor parallelism
  std::vector<UnfitKind> unfit;
};

// A kind is unfit if its degree does not divide the model's heads, or `model_of` rejects it. It is no error if no kind of an
// accelerator fits.
[[nodiscard]] Kinds worker_kinds(const planner::ModelShape& shape, const std::vector<AcceleratorChoice>& accelerators,
                                 const KindSpace& space, const KindModelOf& model_of);

// The controller's linear models: from measurements of the class, otherwise from its data sheet; no pipeline stages. `load`:
// what their errors refer to.
[[nodiscard]] KindModelOf linear_models(const planner::ModelShape& shape, planner::EngineType engine,
                                        std::vector<planner::WorkerEstimate> measured, const planner::WorkerLoad& load);

// Data sheets with fitted efficiencies (planner/perf/operator_model.h) and 90 % of the memory.
[[nodiscard]] KindModelOf roofline_models(const planner::ModelShape& shape);

}  // namespace windlass::search
