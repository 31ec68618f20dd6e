// Implements vidur_ordering.h: Vidur's what-if analysis.
#include "tests/bench/fidelity/vidur_ordering.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/operator_model.h"
#include "tests/bench/fidelity/orderings.h"

namespace windlass::bench {
namespace {

constexpr int kContextTokens = 4096;
constexpr double kDurationSeconds = 240;  // several times the duration of a BWB-4K request
constexpr double kLowestPerSecond = 0.02;
constexpr int kThroughputTokens = 4096;  // limit per iteration of vLLM and Orca+

struct Engine {
  planner::Batching batching;
  int max_batch_tokens;
};
// Likely winners first: a single evaluation then rules out each of the others.
constexpr std::array<Engine, 5> kEngines = {{{planner::Batching::kSarathi, 512},
                                             {planner::Batching::kSarathi, 1024},
                                             {planner::Batching::kSarathi, 2048},
                                             {planner::Batching::kVllm, kThroughputTokens},
                                             {planner::Batching::kMixed, kThroughputTokens}}};
constexpr std::array<int, 5> kBatchSizes = {256, 128, 512, 64, 32};
constexpr std::array<int, 3> kDegrees = {4, 2, 1};

const std::vector<VidurConfiguration>& configurations() {
  static const std::vector<VidurConfiguration> kAll = [] {
    std::vector<VidurConfiguration> all;
    for (const char* accelerator : {"h100-80gb", "a100-80gb"}) {
      for (const int pipeline : {1, 2, 4}) {
        for (const int tensor : kDegrees) {
          for (const Engine& engine : kEngines) {
            for (const int batch : kBatchSizes) {
              all.push_back({accelerator, tensor, pipeline, engine.batching, engine.max_batch_tokens, batch});
            }
          }
        }
      }
    }
    return all;
  }();
  return kAll;
}

// Log-normal with this mean and median: mean / median = exp(s^2 / 2), and cv^2 = exp(s^2) - 1.
workload::LogNormalTokens by_mean_and_median(double mean, double median) {
  const double ratio = mean / median;
  return {mean, std::sqrt(ratio * ratio - 1), kContextTokens - 1};
}
// Log-normal with this median and 90th percentile.
workload::LogNormalTokens by_median_and_p90(double median, double p90) {
  constexpr double kDeviations = 1.2815515655446004;
  const double s = std::log(p90 / median) / kDeviations;
  return {median * std::exp(s * s / 2), std::sqrt(std::exp(s * s) - 1), kContextTokens - 1};
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

}  // namespace

Result<std::vector<VidurWorkload>> vidur_workloads() {
  const workload::ContextLimit context{kContextTokens, /*truncate=*/true};
  const auto independent = [&](const workload::TokenDistribution& input, const workload::TokenDistribution& output) {
    return workload::LengthDistribution::independent(input, output, context);
  };
  WINDLASS_ASSIGN_OR_RETURN(const auto chat, independent(by_mean_and_median(686, 417), by_mean_and_median(197, 139)));
  // Mean 2,588; P90 3,714 where the table has 3,702.
  WINDLASS_ASSIGN_OR_RETURN(const auto arxiv, independent(workload::UniformTokens{1180, 3996}, by_mean_and_median(291, 167)));
  WINDLASS_ASSIGN_OR_RETURN(const auto bwb, independent(by_mean_and_median(1067, 1037), by_median_and_p90(1601, 2149)));
  return std::vector<VidurWorkload>{{"Chat-1M", chat}, {"Arxiv-4K", arxiv}, {"BWB-4K", bwb}};
}

Result<std::vector<VidurModel>> vidur_models() {
  WINDLASS_ASSIGN_OR_RETURN(const auto llama7, planner::model_shape_by_name("llama2-7b"));
  WINDLASS_ASSIGN_OR_RETURN(const auto llama70, planner::model_shape_by_name("llama2-70b"));
  // Llama's architecture, with a key and a value per head.
  WINDLASS_ASSIGN_OR_RETURN(
      const auto intern, planner::model_shape_from_config_json(
                             R"({"model_type": "llama", "torch_dtype": "float16", "num_hidden_layers": 60, "hidden_size": 5120,
      "num_attention_heads": 40, "num_key_value_heads": 40, "intermediate_size": 13824, "vocab_size": 103168,
      "max_position_embeddings": 4096})"));
  WINDLASS_ASSIGN_OR_RETURN(
      const auto qwen, planner::model_shape_from_config_json(
                           R"({"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 80, "hidden_size": 8192,
      "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 24576, "vocab_size": 152064,
      "max_position_embeddings": 32768})"));
  return std::vector<VidurModel>{{"LLaMA2-7B", llama7}, {"InternLM-20B", intern}, {"LLaMA2-70B", llama70}, {"Qwen-72B", qwen}};
}

std::string VidurConfiguration::text() const {
  const std::string engine = batching == planner::Batching::kSarathi ? fmt::format("Sarathi {}", max_batch_tokens)
                             : batching == planner::Batching::kMixed ? std::string("Orca+")
                                                                     : std::string("vLLM");
  return fmt::format("{}, TP {}, PP {}, {}, batch {}", accelerator.starts_with("h100") ? "H100" : "A100", tensor_parallel,
                     pipeline_parallel, engine, batch_size);
}

Result<VidurSearch> VidurSearch::make(const std::string& data) {
  VidurSearch search;
  for (const char* folder : {"a100_sxm", "h100_sxm"}) {
    WINDLASS_ASSIGN_OR_RETURN(MeasuredGpu gpu, load_operators(data, folder));
    const auto efficiency = planner::efficiency_of(gpu.accelerator, gpu.hardware.flops_8bit > 0).efficiency;
    search.times_[gpu.accelerator] = std::make_shared<planner::OperatorTimes>(gpu.hardware, efficiency, gpu.tables);
    search.gpus_[gpu.accelerator] = std::move(gpu);
  }
  return search;
}

Result<VidurSearch::ModelPtr> VidurSearch::latency(const VidurModel& model, const VidurConfiguration& configuration) {
  ModelPtr& built = models_[fmt::format("{}/{}/{}/{}", model.name, configuration.accelerator, configuration.tensor_parallel,
                                        configuration.pipeline_parallel)];
  if (!built) {
    WINDLASS_ASSIGN_OR_RETURN(const auto spec, planner::accelerator_by_name(configuration.accelerator));
    WINDLASS_ASSIGN_OR_RETURN(auto made, planner::OperatorModel::make(model.shape, spec, *times_.at(configuration.accelerator),
                                                                      {.tensor_parallel = configuration.tensor_parallel,
                                                                       .pipeline_parallel = configuration.pipeline_parallel}));
    built = std::make_shared<planner::OperatorModel>(std::move(made));
  }
  return built;
}

double VidurSearch::price_per_hour(const VidurConfiguration& configuration) const {
  const auto spec = planner::accelerator_by_name(configuration.accelerator);
  return spec.ok() ? spec->price_per_hour * configuration.tensor_parallel * configuration.pipeline_parallel : 0;
}

Result<double> VidurSearch::capacity_per_s(const VidurModel& model, const VidurWorkload& workload,
                                           const VidurConfiguration& configuration, const VidurObjectives& objectives,
                                           double only_above_per_s) {
  WINDLASS_ASSIGN_OR_RETURN(const ModelPtr latency_model, latency(model, configuration));
  // A microbatch's share of the cache must hold the longest request.
  if (latency_model->kv_capacity_tokens() < kContextTokens * configuration.pipeline_parallel) return 0.0;
  sim::ServingOptions options;
  sim::ServingPool pool;
  pool.workers = 1;
  pool.model = latency_model.get();
  pool.spec.tensor_parallel = configuration.tensor_parallel;
  pool.spec.pipeline_stages = configuration.pipeline_parallel;
  pool.spec.engine.batching = configuration.batching;
  pool.spec.engine.max_batch_tokens = configuration.max_batch_tokens;
  pool.spec.engine.max_sequences = configuration.batch_size / configuration.pipeline_parallel;
  options.pools = {pool};
  const auto holds = [&](double rate_per_s) -> Result<bool> {
    WINDLASS_ASSIGN_OR_RETURN(const auto result, run_poisson(options, workload.lengths, rate_per_s, kDurationSeconds, 1));
    return result.requests == 0 ||
           (result.refused == 0 && result.ttft.p90_s < objectives.ttft_p90_s && result.tbt.p99_s < objectives.tbt_p99_s &&
            result.scheduling_delay.p99_s < objectives.scheduling_delay_p99_s);
  };
  return highest_rate(holds, kLowestPerSecond, only_above_per_s);
}

Result<VidurSearch::Best> VidurSearch::best(const VidurModel& model, const VidurWorkload& workload,
                                            const VidurObjectives& objectives, const std::string& accelerator) {
  Best best;
  for (const VidurConfiguration& configuration : configurations()) {
    if (!accelerator.empty() && configuration.accelerator != accelerator) continue;
    const double price = price_per_hour(configuration);
    WINDLASS_ASSIGN_OR_RETURN(const double capacity_per_s,
                              capacity_per_s(model, workload, configuration, objectives, best.per_dollar * price));
    if (capacity_per_s / price > best.per_dollar) best = {configuration, capacity_per_s, capacity_per_s / price};
  }
  return best;
}

Result<std::string> vidur_ordering_table(const std::string& data) {
  WINDLASS_ASSIGN_OR_RETURN(VidurSearch search, VidurSearch::make(data));
  WINDLASS_ASSIGN_OR_RETURN(const auto models, vidur_models());
  WINDLASS_ASSIGN_OR_RETURN(const auto workloads, vidur_workloads());
  std::string text =
      "| model | workload | best configuration | requests/s | for a $/h | best of the other GPU | its share | H100's "
      "requests/s a "
      "GPU over A100's |\n|---|---|---|---:|---:|---|---:|---:|\n";
  std::map<std::string, std::map<std::string, VidurSearch::Best>> best;  // by model and workload
  for (const VidurModel& model : models) {
    for (const VidurWorkload& workload : workloads) {
      WINDLASS_ASSIGN_OR_RETURN(auto h100, search.best(model, workload, {}, "h100-80gb"));
      WINDLASS_ASSIGN_OR_RETURN(auto a100, search.best(model, workload, {}, "a100-80gb"));
      const auto per_gpu = [&](const VidurSearch::Best& of) {
        return of.capacity_per_s / (of.configuration.tensor_parallel * of.configuration.pipeline_parallel);
      };
      const double ratio = per_gpu(a100) > 0 ? per_gpu(h100) / per_gpu(a100) : 0;
      const bool h100_wins = h100.per_dollar >= a100.per_dollar;
      const VidurSearch::Best& first = h100_wins ? h100 : a100;
      const VidurSearch::Best& second = h100_wins ? a100 : h100;
      best[model.name][workload.name] = first;
      text += fmt::format("| {} | {} | {} | {:.2f} | {:.3f} | {} | {} | {:.2f} |\n", model.name, workload.name,
                          first.configuration.text(), first.capacity_per_s, first.per_dollar,
                          second.capacity_per_s > 0 ? second.configuration.text() : "none holds",
                          percent(second.per_dollar / first.per_dollar), ratio);
    }
  }

  // Fig. 1b: the cost of serving a workload with another workload's best configuration.
  const VidurModel& llama70 = models[2];
  text += "\n| LLaMA2-70B, cost over its own best | by Chat-1M's best | by Arxiv-4K's | by BWB-4K's |\n|---|---:|---:|---:|\n";
  for (const VidurWorkload& served : workloads) {
    text += fmt::format("| {} |", served.name);
    for (const VidurWorkload& tuned : workloads) {
      const VidurConfiguration& configuration = best[llama70.name][tuned.name].configuration;
      WINDLASS_ASSIGN_OR_RETURN(const double capacity, search.capacity_per_s(llama70, served, configuration, {}));
      const double per_dollar = capacity / search.price_per_hour(configuration);
      text += per_dollar > 0 ? fmt::format(" {:.2f} |", best[llama70.name][served.name].per_dollar / per_dollar) : " never |";
    }
    text += "\n";
  }

  // Fig. 5a: the cost of a tighter TBT.
  text += "\n| LLaMA2-70B, Chat-1M, TBT P99 below | best configuration | requests/s for a $/h |\n|---|---|---:|\n";
  for (const double tbt_s : {0.03, 0.04, 0.05, 0.06, 0.08, 0.10, 0.12, 0.14, 0.20}) {
    WINDLASS_ASSIGN_OR_RETURN(const auto found, search.best(llama70, workloads[0], {.tbt_p99_s = tbt_s}));
    text += fmt::format("| {:.2f} s | {} | {:.3f} |\n", tbt_s,
                        found.capacity_per_s > 0 ? found.configuration.text() : "none holds", found.per_dollar);
  }
  return text;
}

}  // namespace windlass::bench
