// Implements vidur_setting.h.
#include "tests/bench/planner/vidur_setting.h"

#include <map>
#include <utility>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/operator_models.h"
#include "planner/strategies/core/worker_kinds.h"

namespace windlass::bench {

Result<VidurProblem> vidur_problem(const std::string& data, const VidurModel& model, const VidurWorkload& workload,
                                   Executor* executor) {
  VidurProblem made;
  search::Problem& problem = made.problem;
  problem.name = model.name + ", " + workload.name;
  problem.shape = model.shape;
  std::map<std::string, planner::OperatorModels> models;
  for (const char* folder : {"h100_sxm", "a100_sxm"}) {
    WINDLASS_ASSIGN_OR_RETURN(MeasuredGpu gpu, load_operators(data, folder, executor));
    WINDLASS_ASSIGN_OR_RETURN(auto spec, planner::accelerator_by_name(gpu.accelerator));
    models.try_emplace(gpu.accelerator, spec, std::move(gpu.tables), executor);
    problem.accelerators.push_back({std::move(spec)});
  }
  search::KindSpace space;
  space.tensor_parallel = {1, 2, 4};
  space.pipeline_stages = {1, 2, 4};
  const auto measured = [&](const planner::AcceleratorSpec& spec, int tensor, int stages) -> Result<search::KindModel> {
    WINDLASS_ASSIGN_OR_RETURN(auto operators,
                              models.at(spec.name).make(model.shape, {.tensor_parallel = tensor, .pipeline_parallel = stages}));
    const double tokens = operators->kv_capacity_tokens();
    return search::KindModel{std::move(operators), tokens};
  };
  search::Kinds kinds = search::worker_kinds(model.shape, problem.accelerators, space, measured);
  problem.kinds = std::move(kinds.kinds);
  problem.unfit = std::move(kinds.unfit);
  WINDLASS_ASSIGN_OR_RETURN(auto requests, search::DrawnRequests::make(workload.lengths));
  made.requests = std::make_unique<search::DrawnRequests>(std::move(requests));
  problem.requests = made.requests.get();
  problem.requests_per_s = 1;
  problem.objectives.limits = {{search::Metric::kTtft, 90, 2}, {search::Metric::kTpot, 99, 0.2}};
  problem.max_gpus = 16;
  return made;
}

}  // namespace windlass::bench
