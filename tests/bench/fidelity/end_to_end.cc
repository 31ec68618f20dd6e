// Implements end_to_end.h.
#include "tests/bench/fidelity/end_to_end.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/catalog/efficiency.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/data_sheet_model.h"
#include "planner/perf/roofline.h"

namespace windlass::bench {
namespace {

Result<planner::ModelShape> shape_of(const std::string& model) {
  if (model == "Qwen/Qwen3-32B") return planner::model_shape_by_name("qwen3-32b");
  if (model == "meta-llama/Llama-3.1-8B-Instruct" || model == "nvidia/Llama-3.1-8B-Instruct-FP8") {
    return planner::model_shape_by_name("llama3.1-8b");
  }
  return Error{ErrorCode::kNotFound, fmt::format("model_path: must be Qwen3-32B or Llama-3.1-8B-Instruct (got '{}')", model)};
}

// An iteration's kernels by a model, with an engine's costs.
class EngineModel final : public planner::IterationModel {
 public:
  EngineModel(const planner::OperatorModel& kernels, const planner::EngineOverhead& overhead)
      : kernels_(kernels), overhead_(overhead) {}

  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override {
    const planner::OperatorModel::Parts parts = kernels_.parts(batch);
    return parts.sum_s() + planner::engine_overhead_s(overhead_, kernels_.layers(), batch, parts.layers_s());
  }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch& batch) const override { return kernels_.coverage(batch); }
  [[nodiscard]] double kv_capacity_tokens() const override { return kernels_.kv_capacity_tokens(); }

 private:
  const planner::OperatorModel& kernels_;
  planner::EngineOverhead overhead_;
};

planner::EngineSettings with_memory_of(const planner::IterationModel& model, planner::EngineSettings settings) {
  settings.kv_blocks = static_cast<std::int64_t>(std::floor(model.kv_capacity_tokens() / settings.block_tokens));
  return settings;
}

}  // namespace

Result<EndToEnd> EndToEnd::load(const std::string& data) {
  EndToEnd all;
  WINDLASS_ASSIGN_OR_RETURN(all.rows_, load_end_to_end(data));
  for (const char* folder : {"h100_sxm", "h200_sxm"}) {
    WINDLASS_ASSIGN_OR_RETURN(MeasuredGpu gpu, load_operators(data, folder));
    all.gpus_[folder] = {gpu.hardware, planner::efficiency_of(gpu.accelerator, true).efficiency, std::move(gpu.tables)};
  }
  for (const auto& [folder, gpu] : all.gpus_) {
    const planner::GpuTables& other = all.gpus_.at(folder == "h100_sxm" ? "h200_sxm" : "h100_sxm");
    const auto add = [&](Kernels kernels, const planner::OperatorTables& tables) {
      all.times_.try_emplace({folder, kernels}, gpu.hardware, gpu.efficiency, tables);
    };
    add(Kernels::kAsPublished, gpu.tables);
    // H200 has more bandwidth; nothing says that a row of H100's is wrong.
    add(Kernels::kMeasured, folder == "h200_sxm" ? completed_from(gpu, other, &all.replaced_) : gpu.tables);
    planner::GpuTables bare = gpu;
    bare.tables = {};
    add(Kernels::kOtherGpu, completed_from(bare, other));  // H200's as published: the completed ones contain H100's
    all.times_.try_emplace({folder, Kernels::kRoofline}, gpu.hardware, gpu.efficiency);
  }
  return all;
}

Result<const planner::OperatorModel*> EndToEnd::model_of(const EndToEndRow& row, const LoadRecipe& recipe, Kernels kernels) {
  const std::tuple key(row.gpu, kernels, row.model, row.weights, row.tensor_parallel, row.pipeline_parallel,
                       recipe.float8_cache, recipe.memory_share, recipe.reserved_bytes);
  const auto found = models_.find(key);
  if (found != models_.end()) return &found->second;
  WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, shape_of(row.model));
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec spec, accelerator_of(row.gpu));
  planner::OperatorModelOptions options;
  options.tensor_parallel = row.tensor_parallel;
  options.pipeline_parallel = row.pipeline_parallel;
  options.weights = row.weights;
  options.float8_cache = recipe.float8_cache;
  options.overhead = overhead_of(recipe, {});
  WINDLASS_ASSIGN_OR_RETURN(planner::OperatorModel made,
                            planner::OperatorModel::make(shape, spec, times_.at({row.gpu, kernels}), options));
  return &models_.emplace(key, std::move(made)).first->second;
}

ClosedLoopResult predict(const EndToEndRow& row, const LoadRecipe& recipe, const EngineCosts& costs,
                         const planner::OperatorModel& model) {
  return run_closed_loop(load_of(row, recipe, costs), with_memory_of(model, settings_of(row, recipe)),
                         EngineModel(model, overhead_of(recipe, costs)));
}

Result<ClosedLoopResult> predict_by_line(const EndToEndRow& row, const LoadRecipe& recipe,
                                         const std::optional<EngineCosts>& costs) {
  WINDLASS_ASSIGN_OR_RETURN(planner::ModelShape shape, shape_of(row.model));
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec spec, accelerator_of(row.gpu));
  if (row.weights != planner::GemmKind::kBFloat16) {
    constexpr int kBlock = 128;
    const int group = row.weights == planner::GemmKind::kFloat8Block ? kBlock : 0;
    shape.quantisation = planner::WeightQuantisation{
        .method = "fp8", .group_rows = group, .group_columns = group, .compute = planner::DType::kFloat8};
  }
  const int gpus = row.tensor_parallel;
  const planner::LinearCoefficients line =
      costs ? planner::roofline_line(shape, spec, gpus, overhead_of(recipe, *costs))
            : planner::linear_coefficients(shape, spec, gpus, planner::EngineType::kWindlass);
  const planner::LinearIterationModel model = planner::data_sheet_model(line, line.kv_capacity_tokens);
  constexpr double kTurnaroundS = 5e-3;  // of the client: its prior in cost_fit.cc, which no row contradicts
  return run_closed_loop(load_of(row, recipe, {.turnaround_s = kTurnaroundS}), with_memory_of(model, settings_of(row, recipe)),
                         model);
}

bool holds(const EndToEndRow& row, const LoadRecipe& recipe, const planner::OperatorModel& model) {
  const ClosedLoop load = load_of(row, recipe, {});
  return sim::SimulatedEngine(with_memory_of(model, settings_of(row, recipe)))
      .can_hold(load.input_tokens, longest_answer(load));
}

std::string short_model(const EndToEndRow& row) { return row.model.substr(row.model.find('/') + 1); }

std::string set_of(const EndToEndRow& row) {
  return fmt::format("{}, {} {}, {}, {}", row.gpu, row.engine, row.version, short_model(row), planner::to_string(row.weights));
}

Result<double> speed_of_light_share(const EndToEndRow& row) {
  WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, shape_of(row.model));
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec spec, accelerator_of(row.gpu));
  const planner::OperatorHardware hardware = planner::operator_hardware(spec);
  const double gpus = row.tensor_parallel * row.pipeline_parallel;
  const double prompt_flops =
      row.input_tokens * (planner::flops_per_token(shape) + planner::attention_flops_per_token(shape, row.input_tokens / 2.0));
  const double weight_bytes = planner::matmul_weight_bytes(shape) * planner::bytes_per_element(row.weights) / 2;
  // An FP8 checkpoint may come with an FP8 cache.
  const double cache_bytes = planner::kv_bytes(shape, row.input_tokens + row.output_tokens / 2.0) *
                             (row.weights == planner::GemmKind::kBFloat16 ? 1 : 0.5);
  const double token_bytes = weight_bytes / row.clients + cache_bytes;
  const double least_s = (prompt_flops / planner::peak_flops(hardware, row.weights) +
                          (row.output_tokens - 1) * token_bytes / hardware.memory_bandwidth_bytes_per_s) /
                         gpus;
  const double took_s = (row.ttft_s + (row.output_tokens - 1) * row.tpot_s) / row.clients;
  return least_s / took_s;
}

}  // namespace windlass::bench
