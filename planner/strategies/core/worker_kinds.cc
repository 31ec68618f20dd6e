// See worker_kinds.h.
#include "planner/strategies/core/worker_kinds.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/catalog/efficiency.h"
#include "planner/perf/data_sheet_model.h"
#include "planner/perf/operator_model.h"
#include "planner/perf/profile_operators.h"
#include "planner/sizing/worker_config.h"

namespace windlass::search {
namespace {

std::string kind_text(const planner::AcceleratorSpec& spec, int tensor_parallel, int stages) {
  return fmt::format("{}, TP {}{}", spec.name, tensor_parallel, stages == 1 ? "" : fmt::format(" x PP {}", stages));
}

}  // namespace

Kinds worker_kinds(const planner::ModelShape& shape, const std::vector<AcceleratorChoice>& accelerators, const KindSpace& space,
                   const KindModelOf& model_of) {
  Kinds made;
  for (std::size_t a = 0; a < accelerators.size(); ++a) {
    const planner::AcceleratorSpec& spec = accelerators[a].spec;
    const int node = std::min(spec.gpus_per_node, accelerators[a].gpus);
    const std::vector<int> even = planner::tensor_parallel_degrees(shape, spec.gpus_per_node);
    std::vector<std::pair<int, int>> degrees;  // tensor parallelism, stages
    for (const int tensor_parallel : space.tensor_parallel.empty() ? even : space.tensor_parallel) {
      for (const int stages : space.pipeline_stages) degrees.emplace_back(tensor_parallel, stages);
    }
    std::sort(degrees.begin(), degrees.end(), [](const auto& x, const auto& y) {
      return std::tuple(x.first * x.second, x.first) < std::tuple(y.first * y.second, y.first);
    });
    for (const auto& [tensor_parallel, stages] : degrees) {
      const auto unfit = [&, tp = tensor_parallel, pp = stages](const std::string& why) {
        made.unfit.push_back({static_cast<int>(a), tp, pp, fmt::format("{}: {}", kind_text(spec, tp, pp), why)});
      };
      const int gpus = tensor_parallel * stages;
      if (space.max_gpus > 0 && gpus > space.max_gpus) continue;
      if (tensor_parallel > node || gpus > accelerators[a].gpus) {
        unfit(fmt::format("needs {} GPUs, but there are {}{}", tensor_parallel > node ? tensor_parallel : gpus,
                          tensor_parallel > node ? node : accelerators[a].gpus, tensor_parallel > node ? " on a node" : ""));
        continue;
      }
      if (std::find(even.begin(), even.end(), tensor_parallel) == even.end()) {
        unfit(fmt::format("{} heads and {} KV heads cannot be divided evenly", shape.heads, shape.kv_heads));
        continue;
      }
      if (stages > shape.layers) {
        unfit(fmt::format("the model has only {} layers", shape.layers));
        continue;
      }
      auto model = model_of(spec, tensor_parallel, stages);
      if (!model.ok()) {
        unfit(model.error().message);
        continue;
      }
      if (model->kv_capacity_tokens < space.least_kv_tokens) {
        unfit(fmt::format("its KV cache holds {:.0f} tokens, but {:.0f} are needed", std::max(0.0, model->kv_capacity_tokens),
                          space.least_kv_tokens));
        continue;
      }
      made.kinds.push_back(
          {static_cast<int>(a), tensor_parallel, stages, std::move(model->model), model->kv_capacity_tokens, model->errors});
    }
  }
  return made;
}

KindModelOf linear_models(const planner::ModelShape& shape, planner::EngineType engine,
                          std::vector<planner::WorkerEstimate> measured, const planner::WorkerLoad& load) {
  return [shape, engine, measured = std::move(measured), load](const planner::AcceleratorSpec& spec, int tensor_parallel,
                                                               int stages) -> Result<KindModel> {
    const auto refused = [](const std::string& what) { return Error{ErrorCode::kInvalidArgument, what}; };
    if (stages > 1) return refused("the linear model does not support pipeline stages");
    if (!(planner::peak_flops_for(spec, shape.dtype) > 0)) {
      return refused(fmt::format("cannot compute in {}", planner::to_string(shape.dtype)));
    }
    if (tensor_parallel > 1 && !(spec.intra_link_bandwidth_bytes_per_s > 0)) {
      return refused("no link between the GPUs of a node");
    }
    const planner::LinearCoefficients sheet = planner::linear_coefficients(shape, spec, tensor_parallel, engine);
    const planner::LinearCoefficients lines = planner::believed_coefficients(shape, spec, tensor_parallel, engine, measured);
    if (!(lines.kv_capacity_tokens > 0)) {
      return refused(fmt::format("weights of {:.0f} GB leave no room for a KV cache in {:.0f} GB",
                                 planner::weight_bytes(shape) / 1e9, tensor_parallel * spec.memory_bytes / 1e9));
    }
    return KindModel{
        std::make_shared<const planner::LinearIterationModel>(planner::data_sheet_model(lines, lines.kv_capacity_tokens)),
        lines.kv_capacity_tokens, planner::believed_errors(shape, spec, tensor_parallel, engine, sheet, measured, load)};
  };
}

KindModelOf roofline_models(const planner::ModelShape& shape) {
  return [shape](const planner::AcceleratorSpec& spec, int tensor_parallel, int stages) -> Result<KindModel> {
    const planner::OperatorHardware hardware = planner::operator_hardware(spec);
    planner::OperatorModelOptions options;
    options.tensor_parallel = tensor_parallel;
    options.pipeline_parallel = stages;
    WINDLASS_ASSIGN_OR_RETURN(options.weights, planner::gemm_kind(shape));
    const auto entry = planner::efficiency_of(spec.name, hardware.flops_8bit > 0);
    const planner::OperatorTimes times(hardware, entry.efficiency, {});
    WINDLASS_ASSIGN_OR_RETURN(auto model, planner::OperatorModel::make(shape, spec, times, options));
    auto shared = std::make_shared<const planner::OperatorModel>(std::move(model));
    const double kv_capacity_tokens = shared->kv_capacity_tokens();
    return KindModel{std::move(shared), kv_capacity_tokens, planner::sheet_errors(shape, spec, planner::EngineType::kWindlass)};
  };
}

}  // namespace windlass::search
