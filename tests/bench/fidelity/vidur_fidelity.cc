// Implements vidur_fidelity.h.
#include "tests/bench/fidelity/vidur_fidelity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/catalog/efficiency.h"
#include "planner/perf/operator_model.h"
#include "planner/perf/profile_operators.h"
#include "planner/sim/serving_simulation.h"
#include "tests/bench/fidelity/operator_data.h"
#include "tests/bench/fidelity/vidur_ordering.h"
#include "tests/bench/fidelity/vidur_simulator.h"
#include "tests/list_source.h"

namespace windlass::bench {
namespace {

constexpr int kGpus = 2, kMaxSequences = 128, kBlockTokens = 16;
// Vidur's planner of memory: 90 % of 80 GiB, less the layers' weights, in whole requests of 4,096 tokens.
constexpr std::int64_t kBlocks = 109 * 4096 / kBlockTokens;

struct Setting {
  std::vector<planner::VidurSample> samples;
  planner::ModelShape shape;
  planner::AcceleratorSpec spec;
};

Result<Setting> setting(const std::string& data) {
  Setting made;
  WINDLASS_ASSIGN_OR_RETURN(made.samples, load_vidur(data));
  WINDLASS_ASSIGN_OR_RETURN(made.shape, planner::model_shape_by_name("codellama-34b"));
  WINDLASS_ASSIGN_OR_RETURN(made.spec, planner::accelerator_by_name("a100-80gb"));
  return made;
}

// What `windlass fit` makes of the profile, or without some of its parts.
enum class Parts { kAll, kWithoutLaunches, kWithoutLaunchesAndRay, kKernels };

Result<planner::OperatorModel> ours(const Setting& of, Parts parts) {
  planner::VidurProfiles profiles;
  for (const planner::VidurSample& sample : of.samples) {
    const bool cpu = sample.name.starts_with("cpu_");
    if (cpu && parts == Parts::kKernels) continue;
    if (sample.name == "cpu_ray_comm_time" && parts == Parts::kWithoutLaunchesAndRay) continue;
    std::vector<planner::VidurSample>& to = cpu                        ? profiles.cpu
                                            : sample.gpus_per_node > 0 ? profiles.all_reduce
                                            : sample.name.ends_with("_decode") || sample.name.ends_with("_prefill")
                                                ? profiles.attention
                                                : profiles.mlp;
    to.push_back(sample);
  }
  WINDLASS_ASSIGN_OR_RETURN(planner::VidurTables tables, planner::tables_of(profiles, of.shape, kGpus));
  if (parts == Parts::kWithoutLaunches || parts == Parts::kWithoutLaunchesAndRay) {
    for (planner::CollectiveRow& row : tables.tables.collectives) row.time_s -= planner::kVidurLaunchSeconds;
  }
  const planner::OperatorHardware hardware = planner::operator_hardware(of.spec);
  const auto efficiency = planner::efficiency_of(of.spec.name, hardware.flops_8bit > 0).efficiency;
  const planner::OperatorTimes times(hardware, efficiency, tables.tables);
  planner::OperatorModelOptions options;
  options.tensor_parallel = kGpus;
  options.overhead = tables.overhead;
  return planner::OperatorModel::make(of.shape, of.spec, times, options);
}

// ---- single iterations ----

struct Iteration {
  std::string text;
  std::vector<VidurPart> parts;
  planner::Batch batch;
};

std::vector<Iteration> iterations() {
  std::vector<Iteration> made;
  for (const int sequences : {8, 16, 32, 64, 128}) {
    constexpr int kContext = 512;
    made.push_back({fmt::format("{} decodes after {} tokens", sequences, kContext),
                    std::vector<VidurPart>(static_cast<std::size_t>(sequences), {1, kContext, false}),
                    planner::decode_batch(sequences, kContext)});
  }
  for (const auto& [sequences, tokens] : {std::pair{1, 256}, {1, 1024}, {1, 4096}, {4, 1024}}) {
    made.push_back({fmt::format("{} {} of {} tokens", sequences, sequences == 1 ? "prompt" : "prompts", tokens),
                    std::vector<VidurPart>(static_cast<std::size_t>(sequences), {tokens, 0, true}),
                    planner::prefill_batch(sequences, tokens)});
  }
  for (const int cached : {512, 1024, 2048, 3072}) {
    constexpr int kChunk = 512;
    planner::Batch batch = planner::prefill_batch(1, kChunk);
    batch.prefill_attention = std::pow(cached + kChunk, 2) - std::pow(cached, 2);
    made.push_back({fmt::format("a chunk of {} after {} tokens", kChunk, cached), {{kChunk, cached, true}}, batch});
  }
  return made;
}

// The median that the profile has for decodes of this many sequences; 0: none.
double measured_model_s(const Setting& of, int sequences) {
  for (const planner::VidurSample& sample : of.samples) {
    if (sample.name == "cpu_model_execution_e2e" && sample.gpus == kGpus && sample.x[0] == sequences) return sample.time_s;
  }
  return 0;
}

std::string off(double ours_s, double vidur_s) { return fmt::format("{:+.1f} %", 100 * (ours_s / vidur_s - 1)); }

// ---- whole runs ----

class Collected final : public sim::ServingObserver {
 public:
  explicit Collected(std::size_t requests) : served_(requests) {}
  void on_request(const sim::ServedRequest& request) override {
    served_[static_cast<std::size_t>(request.number)] = {request.ttft_s, request.e2e_s};
  }
  void on_sample(const sim::WorkerSample& /*sample*/) override {}
  [[nodiscard]] const std::vector<VidurServed>& served() const { return served_; }

 private:
  std::vector<VidurServed> served_;
};

Result<std::vector<VidurServed>> our_run(const planner::OperatorModel& model, const VidurEngine& engine,
                                         std::span<const workload::Request> requests) {
  sim::ServingOptions options;
  sim::ServingPool& pool = options.pools.emplace_back();
  pool.workers = 1;
  pool.model = &model;
  pool.spec.tensor_parallel = kGpus;
  pool.spec.engine.batching = engine.batching;
  pool.spec.engine.max_sequences = engine.max_sequences;
  pool.spec.engine.max_batch_tokens = engine.max_batch_tokens;
  pool.spec.engine.kv_blocks = engine.blocks;
  sim::ListSource source({requests.begin(), requests.end()});
  Collected collected(requests.size());
  options.observer = &collected;
  WINDLASS_ASSIGN_OR_RETURN(const auto result, sim::simulate_serving(source, options));
  if (result.completed != static_cast<std::int64_t>(requests.size())) {
    return Error{ErrorCode::kInternal, fmt::format("{} of {} requests were served", result.completed, requests.size())};
  }
  return collected.served();
}

VidurFigures figures_of(std::span<const workload::Request> requests, const std::vector<VidurServed>& served) {
  std::vector<double> ttft, tbt, per_token;
  for (std::size_t i = 0; i < served.size(); ++i) {
    const int output = requests[i].output_tokens;
    ttft.push_back(served[i].ttft_s);
    if (output > 1) tbt.push_back((served[i].e2e_s - served[i].ttft_s) / (output - 1));
    per_token.push_back(served[i].e2e_s / output);
  }
  const auto quantile = [](std::vector<double>& values, double share) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), at, values.end());
    return *at;
  };
  return {quantile(ttft, 0.5), quantile(tbt, 0.5), quantile(per_token, 0.5), quantile(per_token, 0.95)};
}

std::vector<workload::Request> drawn(const workload::LengthDistribution& lengths, int count, double rate_per_s) {
  Rng arrivals(1, "arrivals"), tokens(1, "lengths");
  std::vector<workload::Request> made;
  double now_s = 0;
  for (int i = 0; i < count; ++i) {
    workload::Request request;
    if (std::isfinite(rate_per_s)) now_s += arrivals.exponential(rate_per_s);
    request.arrival_s = now_s;
    const workload::TokenPair pair = lengths.draw(tokens);
    request.input_tokens = pair.input_tokens;
    request.output_tokens = pair.output_tokens;
    made.push_back(request);
  }
  return made;
}

}  // namespace

Result<std::string> vidur_iterations_table(const std::string& data) {
  WINDLASS_ASSIGN_OR_RETURN(const Setting of, setting(data));
  WINDLASS_ASSIGN_OR_RETURN(const VidurTimes vidur, VidurTimes::make(of.samples, of.shape, kGpus));
  WINDLASS_ASSIGN_OR_RETURN(const VidurTimes vidur_model, VidurTimes::make(of.samples, of.shape, kGpus, {.cpu = false}));
  std::vector<planner::OperatorModel> models;
  for (const Parts parts : {Parts::kKernels, Parts::kWithoutLaunchesAndRay, Parts::kWithoutLaunches, Parts::kAll}) {
    WINDLASS_ASSIGN_OR_RETURN(auto model, ours(of, parts));
    models.push_back(std::move(model));
  }
  std::string text =
      "| iteration, ms | model alone: measured | Vidur | ours | whole: Vidur | ours, CPU times without Ray's | with Ray's | "
      "with "
      "launches | |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const Iteration& iteration : iterations()) {
    const double measured_s = measured_model_s(of, iteration.batch.decode_sequences);
    const double whole_s = vidur.iteration_s(iteration.parts);
    text += fmt::format(
        "| {} | {} | {:.1f} | {:.1f} | {:.1f} |", iteration.text, measured_s > 0 ? fmt::format("{:.1f}", 1e3 * measured_s) : "",
        1e3 * vidur_model.iteration_s(iteration.parts), 1e3 * models[0].iteration_s(iteration.batch), 1e3 * whole_s);
    double last_s = 0;
    for (std::size_t i = 1; i < models.size(); ++i) {
      last_s = models[i].iteration_s(iteration.batch);
      text += fmt::format(" {:.1f} |", 1e3 * last_s);
    }
    text += fmt::format(" {} |\n", off(last_s, whole_s));
  }
  return text;
}

Result<std::vector<VidurComparison>> vidur_comparisons(const std::string& data, int requests,
                                                       const std::vector<double>& loads) {
  WINDLASS_ASSIGN_OR_RETURN(const Setting of, setting(data));
  WINDLASS_ASSIGN_OR_RETURN(const VidurTimes vidur, VidurTimes::make(of.samples, of.shape, kGpus));
  WINDLASS_ASSIGN_OR_RETURN(const auto without, ours(of, Parts::kWithoutLaunchesAndRay));
  WINDLASS_ASSIGN_OR_RETURN(const auto now, ours(of, Parts::kAll));
  WINDLASS_ASSIGN_OR_RETURN(const auto workloads, vidur_workloads());
  std::vector<VidurComparison> made;
  for (const VidurEngine& engine : {VidurEngine{planner::Batching::kVllm, kMaxSequences, 4096, kBlocks},
                                    VidurEngine{planner::Batching::kSarathi, kMaxSequences, 512, kBlocks}}) {
    for (const VidurWorkload& workload : workloads) {
      const auto burst = drawn(workload.lengths, requests, std::numeric_limits<double>::infinity());
      double last_s = 0;
      for (const VidurServed& served : vidur_simulate(vidur, engine, burst)) last_s = std::max(last_s, served.e2e_s);
      for (const double load : loads) {
        const auto arriving = drawn(workload.lengths, requests, load * requests / last_s);
        WINDLASS_ASSIGN_OR_RETURN(const auto run, our_run(now, engine, arriving));
        WINDLASS_ASSIGN_OR_RETURN(const auto run_without, our_run(without, engine, arriving));
        made.push_back({workload.name, engine.batching, load, figures_of(arriving, vidur_simulate(vidur, engine, arriving)),
                        figures_of(arriving, run), figures_of(arriving, run_without)});
      }
    }
  }
  return made;
}

Result<std::string> vidur_simulator_table(const std::string& data) {
  WINDLASS_ASSIGN_OR_RETURN(const auto comparisons, vidur_comparisons(data, 3000, {0.25, 0.5, 0.85}));
  std::string text =
      "| scheduler | workload | load | Vidur: TTFT P50 | TBT P50 | E2E/token P50 | P95 | ours: TTFT P50 | TBT P50 | E2E/token "
      "P50 | "
      "P95 | E2E/token P50 without Ray and launches |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const VidurComparison& of : comparisons) {
    text += fmt::format("| {} | {} | {:.0f} % | {:.0f} ms | {:.1f} ms | {:.1f} ms | {:.1f} ms | {} | {} | {} | {} | {} |\n",
                        of.batching == planner::Batching::kVllm ? "vLLM" : "Sarathi 512", of.workload, 100 * of.load,
                        1e3 * of.vidur.ttft_p50_s, 1e3 * of.vidur.tbt_p50_s, 1e3 * of.vidur.per_token_p50_s,
                        1e3 * of.vidur.per_token_p95_s, off(of.ours.ttft_p50_s, of.vidur.ttft_p50_s),
                        off(of.ours.tbt_p50_s, of.vidur.tbt_p50_s), off(of.ours.per_token_p50_s, of.vidur.per_token_p50_s),
                        off(of.ours.per_token_p95_s, of.vidur.per_token_p95_s),
                        off(of.without.per_token_p50_s, of.vidur.per_token_p50_s));
  }
  return text;
}

}  // namespace windlass::bench
