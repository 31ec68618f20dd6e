// Implements end_to_end.h.
#include "tests/bench/fidelity/end_to_end.h"

#include <cmath>
#include <map>
#include <tuple>

#include "planner/catalog/accelerators_by_name.h"

namespace windlass::bench {

namespace {

// Launching about ten kernels per layer from Python, without a CUDA graph.
constexpr double kEagerLayerSeconds = 300e-6;

Result<planner::ModelShape> shape_of(const std::string& model) {
  if (model == "Qwen/Qwen3-32B") return planner::model_shape_by_name("qwen3-32b");
  if (model == "meta-llama/Llama-3.1-8B-Instruct") return planner::model_shape_by_name("llama3.1-8b");
  return Error{ErrorCode::kNotFound,
               "model_path: must be Qwen/Qwen3-32B or meta-llama/Llama-3.1-8B-Instruct (got " + model + ")"};
}

}  // namespace

Result<CpuTime> cpu_time(const std::vector<planner::VidurSample>& samples, const std::vector<std::string>& names) {
  CpuTime sum;
  for (const std::string& name : names) {
    double count = 0;
    double x = 0;
    double y = 0;
    double xx = 0;
    double xy = 0;
    for (const planner::VidurSample& sample : samples) {
      if (sample.name != name) continue;
      ++count;
      x += sample.x[0];
      y += sample.time_s;
      xx += sample.x[0] * sample.x[0];
      xy += sample.x[0] * sample.time_s;
    }
    const double spread = count * xx - x * x;
    if (spread <= 0) return Error{ErrorCode::kNotFound, name + ": must have at least two batch sizes among Vidur's samples"};
    const double slope = (count * xy - x * y) / spread;
    sum.sequence_s += slope;
    sum.iteration_s += (y - slope * x) / count;
  }
  return sum;
}

Result<EngineSetting> engine_setting(const std::string& engine, const std::vector<planner::VidurSample>& vidur) {
  WINDLASS_ASSIGN_OR_RETURN(const CpuTime whole, cpu_time(vidur, {"cpu_schedule", "cpu_prepare_inputs_e2e", "cpu_sampler_e2e",
                                                                  "cpu_process_model_outputs"}));
  // An engine that prepares the next batch while the GPU computes hides everything except the sampler.
  WINDLASS_ASSIGN_OR_RETURN(const CpuTime overlapped, cpu_time(vidur, {"cpu_sampler_e2e"}));
  EngineSetting setting;
  setting.name = engine;
  // Serving benchmarks reach the engine through HTTP, a tokeniser and a stream of server-sent events.
  setting.load.request_s = 10e-3;
  setting.load.turnaround_s = 5e-3;
  planner::EngineOverhead& overhead = setting.overhead;
  if (engine == "vllm") {
    // V1 0.12: prompt chunks run together with decodes; its API server allows 8,192 tokens per iteration on H100; CUDA graphs
    // up to 512 tokens; scheduling does not overlap yet. Ten requests per client; clients start one after the other.
    setting.batching = planner::Batching::kSarathi;
    setting.rounds = 10;
    setting.load.stagger_s = 20e-3;
    overhead = {whole.iteration_s, whole.sequence_s, kEagerLayerSeconds, 512, 0.9, 4e9};
  } else if (engine == "sglang") {
    // Prefills first, in batches of up to 8,192 tokens; scheduling overlaps; CUDA graphs only for decode. All requests start
    // together.
    setting.batching = planner::Batching::kVllm;
    overhead = {overlapped.iteration_s, overlapped.sequence_s, kEagerLayerSeconds, 256, 0.84, 1e9};
  } else if (engine == "trtllm") {
    setting.batching = planner::Batching::kSarathi;
    setting.rounds = 10;
    setting.load.stagger_s = 20e-3;
    overhead = {overlapped.iteration_s, overlapped.sequence_s, kEagerLayerSeconds / 2, 128, 0.9, 4e9};
  } else {
    return Error{ErrorCode::kInvalidArgument, "backend: must be vllm, sglang or trtllm (got " + engine + ")"};
  }
  return setting;
}

Result<std::vector<EndToEndPrediction>> predict_end_to_end(const std::vector<EndToEndRow>& rows, const MeasuredGpu& h100,
                                                           const std::vector<planner::VidurSample>& vidur,
                                                           const EndToEndOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec spec, planner::accelerator_by_name(h100.accelerator));
  const planner::AcceleratorEfficiency efficiency = planner::efficiency_of(h100.accelerator, true).efficiency;
  const planner::OperatorTimes times = options.roofline_only ? planner::OperatorTimes(h100.hardware, efficiency)
                                                             : planner::OperatorTimes(h100.hardware, efficiency, h100.tables);
  std::map<std::tuple<std::string, std::string, bool, int>, planner::OperatorModel> models;
  std::vector<EndToEndPrediction> result;
  for (const EndToEndRow& row : rows) {
    WINDLASS_ASSIGN_OR_RETURN(const EngineSetting setting, engine_setting(row.engine, vidur));
    const std::tuple key(row.engine, row.model, row.float8, row.tensor_parallel);
    auto model = models.find(key);
    if (model == models.end()) {
      WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, shape_of(row.model));
      planner::OperatorModelOptions model_options;
      model_options.tensor_parallel = row.tensor_parallel;
      model_options.pipeline_parallel = row.pipeline_parallel;
      model_options.weights = row.float8 ? planner::GemmKind::kFloat8 : planner::GemmKind::kBFloat16;
      model_options.overhead = setting.overhead;
      WINDLASS_ASSIGN_OR_RETURN(planner::OperatorModel made, planner::OperatorModel::make(shape, spec, times, model_options));
      model = models.emplace(key, std::move(made)).first;
    }
    ClosedLoop load = setting.load;
    if (options.stagger_s >= 0 && setting.rounds > 1) load.stagger_s = options.stagger_s;
    load.clients = row.clients;
    load.requests = setting.rounds * row.clients;
    load.input_tokens = row.input_tokens;
    load.output_tokens = row.output_tokens;
    planner::EngineSettings engine;
    engine.batching = setting.batching;
    engine.max_batch_tokens = setting.max_batch_tokens;
    engine.max_sequences = setting.max_sequences;
    engine.kv_blocks = static_cast<std::int64_t>(std::floor(model->second.kv_capacity_tokens() / engine.block_tokens));
    result.push_back({row, run_closed_loop(load, engine, model->second)});
  }
  return result;
}

}  // namespace windlass::bench
