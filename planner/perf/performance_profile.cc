// Makes an iteration model from a profile; see performance_profile.h.
#include "planner/perf/performance_profile.h"

#include <utility>

#include <fmt/format.h>

#include "planner/perf/operator_times.h"

namespace windlass::planner {
namespace {

using Model = std::shared_ptr<const IterationModel>;

Result<Model> model_of(const MeasuredCells& measured, const PerformanceProfile& profile, double kv_capacity_tokens) {
  std::vector<ProfileRow> rows;
  for (std::size_t i = 0; i < measured.cells.size(); ++i) {
    const MeasuredCell& cell = measured.cells[i];
    rows.push_back({profile.model, profile.accelerator, profile.gpus_per_worker, cell.prompt_tokens, cell.batch_size,
                    cell.output_tokens, cell.prompt_s, cell.token_s, cell.end_to_end_s});
    if (is_one_batch(rows.back())) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("spec.fit.profile.points[{}].endToEndSeconds: must be at most twice the time of the prompt and {:g} "
                    "tokens (got {:g}): it was not a single batch",
                    i, cell.output_tokens, cell.end_to_end_s)};
  }
  const ProfileKey key{profile.model, profile.accelerator, profile.gpus_per_worker};
  WINDLASS_ASSIGN_OR_RETURN(ProfileTable table, ProfileTable::make(rows, key, measured.reading, kv_capacity_tokens));
  return Model(std::make_shared<ProfileTable>(std::move(table)));
}

Result<Model> model_of(const MeasuredOperators& measured, const PerformanceProfile& profile, const ModelShape& shape,
                       const AcceleratorSpec& accelerator) {
  const OperatorShape asked = operator_shape(shape);
  struct Size {
    const char* name;
    std::int64_t OperatorShape::*value;
  };
  for (const auto& [name, value] :
       {Size{"layers", &OperatorShape::layers}, Size{"hidden", &OperatorShape::hidden}, Size{"heads", &OperatorShape::heads},
        Size{"kvHeads", &OperatorShape::kv_heads}, Size{"headDim", &OperatorShape::head_dim},
        Size{"intermediate", &OperatorShape::intermediate}, Size{"vocab", &OperatorShape::vocab}}) {
    if (measured.shape.*value == asked.*value) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("spec.fit.operators.shape.{}: must be the model's {} (got {}): the tables were reduced to another "
                             "model",
                             name, asked.*value, measured.shape.*value)};
  }
  OperatorModelOptions options;
  options.tensor_parallel = profile.tensor_parallel();
  options.pipeline_parallel = profile.pipeline_parallel;
  options.weights = measured.weights;
  options.overhead = measured.overhead;
  const OperatorHardware hardware = operator_hardware(accelerator);
  const AcceleratorEfficiency efficiency = efficiency_of(accelerator.name, hardware.flops_8bit > 0).efficiency;
  const OperatorTimes times(hardware, efficiency, measured.tables);
  WINDLASS_ASSIGN_OR_RETURN(OperatorModel model, OperatorModel::make(shape, accelerator, times, options));
  return Model(std::make_shared<OperatorModel>(std::move(model)));
}

}  // namespace

OperatorShape operator_shape(const ModelShape& shape) {
  return {shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.intermediate, shape.vocab};
}

const char* fit_type(const PerformanceProfile& profile) {
  static constexpr const char* kTypes[] = {"Linear", "Profile", "Operators"};
  return kTypes[profile.fit.index()];
}

Result<Model> iteration_model(const PerformanceProfile& profile, const ModelShape& shape, const AcceleratorSpec& accelerator,
                              double kv_capacity_tokens) {
  const double capacity = profile.kv_capacity_tokens.value_or(kv_capacity_tokens);
  if (const auto* lines = std::get_if<FittedLines>(&profile.fit)) {
    return Model(std::make_shared<LinearIterationModel>(lines->prefill, lines->decode, capacity));
  }
  if (const auto* cells = std::get_if<MeasuredCells>(&profile.fit)) return model_of(*cells, profile, capacity);
  return model_of(std::get<MeasuredOperators>(profile.fit), profile, shape, accelerator);
}

}  // namespace windlass::planner
