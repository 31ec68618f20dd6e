// Implements tetriinfer_ordering.h: TetriInfer against vLLM.
#include "tests/bench/fidelity/tetriinfer_ordering.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "tests/bench/fidelity/operator_data.h"
#include "tests/bench/fidelity/orderings.h"

namespace windlass::bench {
namespace {

using workload::TokenPair;

constexpr int kContextTokens = 2048;
constexpr int kHeavyPrefillTokens = 512;
constexpr int kHeavyDecodeTokens = 128;
constexpr int kChunkTokens = 512;
constexpr int kVllmBatchTokens = 2560;  // vLLM's default in 2023

// The same model, with each iteration slower by a factor.
class Slowed final : public planner::IterationModel {
 public:
  Slowed(const planner::IterationModel& model, double factor) : model_(model), factor_(factor) {}
  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override { return factor_ * model_.iteration_s(batch); }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch& batch) const override { return model_.coverage(batch); }
  [[nodiscard]] double kv_capacity_tokens() const override { return model_.kv_capacity_tokens(); }

 private:
  const planner::IterationModel& model_;
  double factor_;
};

// Records when the first and the last prompt were done, and the last answer.
class Spans final : public sim::ServingObserver {
 public:
  void on_request(const sim::ServedRequest& request) override {
    const double first_s = request.arrival_s + request.ttft_s;
    first_prompt_s = std::min(first_prompt_s, first_s);
    last_prompt_s = std::max(last_prompt_s, first_s);
    end_s = std::max(end_s, request.arrival_s + request.e2e_s);
  }
  void on_sample(const sim::WorkerSample&) override {}

  double first_prompt_s = std::numeric_limits<double>::infinity();
  double last_prompt_s = 0;
  double end_s = 0;
};

std::vector<TokenPair> of_class(const std::vector<TokenPair>& all, const std::string& name) {
  if (name == "Mixed") return all;
  std::vector<TokenPair> result;
  for (const TokenPair& pair : all) {
    const bool heavy_prefill = pair.input_tokens > kHeavyPrefillTokens;
    const bool heavy_decode = pair.output_tokens > kHeavyDecodeTokens;
    if (heavy_prefill == name.starts_with("HP") && heavy_decode == name.ends_with("HD")) result.push_back(pair);
  }
  return result;
}

sim::ServingPool pool_of(dispatch::Role role, const planner::IterationModel& model) {
  sim::ServingPool pool;
  pool.workers = 1;
  pool.role = role;
  pool.model = &model;
  pool.spec.tensor_parallel = 2;
  pool.spec.engine.batching = planner::Batching::kVllm;
  pool.spec.engine.max_batch_tokens = kVllmBatchTokens;
  return pool;
}

Result<TetriInferRun> run(const std::vector<TokenPair>& requests, sim::ServingOptions options, bool split) {
  Burst source(requests);
  Spans spans;
  options.observer = &spans;
  WINDLASS_ASSIGN_OR_RETURN(const sim::ServingResult result, sim::simulate_serving(source, options));
  const double resource_s = split ? spans.last_prompt_s + (spans.end_s - spans.first_prompt_s) : spans.end_s;
  return TetriInferRun{result.ttft.mean_s, result.e2e.mean_s, resource_s};
}

}  // namespace

const std::vector<TetriInferWorkload>& tetriinfer_workloads() {
  static const std::vector<TetriInferWorkload> kWorkloads = {{"LPLD", 0.44, 0.40, 0, 1.4},
                                                             {"LPHD", 0.97, 0.47, 0.38, 2.4},
                                                             {"HPLD", 0.09, 0.23, -0.43, 0.86},
                                                             {"HPHD", -1, 0.19, -0.07, 1.1},
                                                             {"Mixed", 0.85, 0.50, 0.21, 1.9}};
  return kWorkloads;
}

Result<std::vector<TetriInferComparison>> compare_tetriinfer(const std::vector<TokenPair>& sharegpt,
                                                             const TetriInferOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, planner::model_shape_by_name("opt-13b"));
  WINDLASS_ASSIGN_OR_RETURN(const planner::AcceleratorSpec v100, planner::accelerator_by_name("v100-32gb"));
  const planner::OperatorTimes times(planner::operator_hardware(v100), planner::efficiency_of(v100.name, false).efficiency);
  WINDLASS_ASSIGN_OR_RETURN(
      const planner::OperatorModel model,
      planner::OperatorModel::make(shape, v100, times, {.tensor_parallel = 2, .overhead = options.overhead}));
  const Slowed with_predictor(model, 1.1);

  sim::ServingOptions vllm;
  vllm.pools = {pool_of(dispatch::Role::kUnified, model)};
  vllm.pools[0].spec.engine.max_sequences = options.vllm_batch;
  sim::ServingOptions split;
  split.pools = {pool_of(dispatch::Role::kPrefill, with_predictor), pool_of(dispatch::Role::kDecode, model)};
  planner::EngineSettings& prefill = split.pools[0].spec.engine;
  prefill.batching = planner::Batching::kSarathi;
  prefill.max_batch_tokens = kChunkTokens;
  if (options.shortest_first) prefill.prompt_order = planner::PromptOrder::kShortestFirst;
  if (options.reserve_dynamic) {
    split.pools[1].spec.engine.admission = planner::DecodeAdmission::kReserveDynamic;
    split.dispatch.prediction = dispatch::LengthPrediction{};
  }
  split.dispatch.heavy_decode_tokens = kHeavyDecodeTokens;
  split.link.path.bandwidth_bytes_per_s = options.link_bytes_per_s;
  split.link.kv_bytes_per_token = planner::kv_bytes_per_token(shape);

  std::vector<TetriInferComparison> result;
  for (const TetriInferWorkload& workload : tetriinfer_workloads()) {
    WINDLASS_ASSIGN_OR_RETURN(const auto lengths, workload::LengthDistribution::empirical(of_class(sharegpt, workload.name)));
    TetriInferComparison mean{workload.name, {}, {}};
    for (int seed = 0; seed < options.seeds; ++seed) {
      Rng rng(static_cast<std::uint64_t>(seed), "tetriinfer/" + workload.name);
      std::vector<TokenPair> requests;
      for (int i = 0; i < options.requests; ++i) requests.push_back(lengths.draw(rng));
      const auto add = [&](TetriInferRun& to, const TetriInferRun& of) {
        to.ttft_s += of.ttft_s / options.seeds;
        to.jct_s += of.jct_s / options.seeds;
        to.resource_s += of.resource_s / options.seeds;
      };
      vllm.seed = split.seed = static_cast<std::uint64_t>(seed);
      WINDLASS_ASSIGN_OR_RETURN(const TetriInferRun coupled, run(requests, vllm, false));
      WINDLASS_ASSIGN_OR_RETURN(const TetriInferRun apart, run(requests, split, true));
      add(mean.vllm, coupled);
      add(mean.tetriinfer, apart);
    }
    result.push_back(mean);
  }
  return result;
}

Result<std::string> tetriinfer_table(const std::string& data) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<TokenPair> sharegpt, sharegpt_lengths(data, kContextTokens));
  std::string text =
      "| workload | setting | TTFT, vLLM | TetriInfer | less by | JCT, vLLM | TetriInfer | less by | resource time less by | "
      "perf/$ "
      "|\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  struct Case {
    const char* name;
    TetriInferOptions options;
  };
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<planner::VidurSample> samples, load_vidur(data));
  WINDLASS_ASSIGN_OR_RETURN(const CpuTime measured, cpu_time(samples, {"cpu_schedule", "cpu_prepare_inputs_e2e",
                                                                       "cpu_sampler_e2e", "cpu_process_model_outputs"}));
  planner::EngineOverhead cpu;
  cpu.iteration_s = measured.iteration_s;
  cpu.sequence_s = measured.sequence_s;
  const std::vector<Case> cases = {{"RoCE", {}},
                                   {"NVLink", {.link_bytes_per_s = 300e9}},
                                   {"RoCE, the split alone", {.shortest_first = false, .reserve_dynamic = false}},
                                   {"RoCE, with CPU times", {.overhead = cpu}},
                                   {"RoCE, vLLM's batch 256", {.vllm_batch = 256}}};
  std::vector<std::vector<TetriInferComparison>> found;
  for (const Case& entry : cases) {
    WINDLASS_ASSIGN_OR_RETURN(auto comparisons, compare_tetriinfer(sharegpt, entry.options));
    found.push_back(std::move(comparisons));
  }
  for (std::size_t w = 0; w < tetriinfer_workloads().size(); ++w) {
    const TetriInferWorkload& paper = tetriinfer_workloads()[w];
    const std::string ttft = paper.paper_ttft < 0 ? "more than HPLD" : fmt::format("{:.0f} %", 100 * paper.paper_ttft);
    text += fmt::format("| {} | the paper | | | {} | | | {:.0f} % | {:.0f} % | {:.2f} |\n", paper.name, ttft,
                        100 * paper.paper_jct, 100 * paper.paper_resource, paper.paper_perf_per_dollar);
    for (std::size_t c = 0; c < cases.size(); ++c) {
      const TetriInferComparison& of = found[c][w];
      text += fmt::format("| | {} | {:.2f} s | {:.2f} s | {:.0f} % | {:.1f} s | {:.1f} s | {:.0f} % | {:.0f} % | {:.2f} |\n",
                          cases[c].name, of.vllm.ttft_s, of.tetriinfer.ttft_s, 100 * of.ttft_less(), of.vllm.jct_s,
                          of.tetriinfer.jct_s, 100 * of.jct_less(), 100 * of.resource_less(), of.perf_per_dollar());
    }
  }
  return text;
}

}  // namespace windlass::bench
