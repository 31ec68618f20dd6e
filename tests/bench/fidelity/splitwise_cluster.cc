// Implements splitwise_cluster.h.
#include "tests/bench/fidelity/splitwise_cluster.h"

#include <map>

#include <fmt/format.h>

#include "planner/whatif/scenario.h"
#include "planner/whatif/scenario_yaml.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {
namespace {

constexpr const char* kScenario = R"(
seed: 0
model: {{name: bloom-176b}}
latency: {{source: profile, file: profiles/splitwise/perf_model.csv, tensorParallel: 8}}
workload: {{trace: traces/AzureLLMInferenceTrace_code.csv, arrivals: poisson, requestsPerSecond: 70, duration: 120s}}
cluster:
  pools:
  - {{role: prefill, accelerator: h100-80gb, gpusPerWorker: 8, workers: {}}}
  - {{role: decode,  accelerator: h100-80gb, gpusPerWorker: 8, workers: 3}}
  link: {{bandwidthGBps: 200, latency: 5us}}
scheduling: {{batching: vllm, dispatch: {}, mixedPool: true, mixedPoolThresholdTokens: 8192, maxBatchTokens: 2048}}
slowdownReference: {{accelerator: a100-80gb, gpusPerWorker: 8}}
)";

}  // namespace

Result<SplitwiseSeeds> splitwise_seeds(const std::string& data, int prompt_machines, const std::string& dispatch) {
  WINDLASS_ASSIGN_OR_RETURN(
      sim::Scenario scenario,
      sim::parse_scenario(fmt::format(fmt::runtime(kScenario), prompt_machines, dispatch), "splitwise-code.yaml"));
  std::map<std::string, std::string> texts;
  for (const sim::ScenarioFile& file : sim::files_of(scenario)) {
    WINDLASS_ASSIGN_OR_RETURN(texts[file.path], read_text(data + "/" + file.path));
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto prepared, sim::PreparedScenario::make(std::move(scenario), texts));
  SplitwiseSeeds found;
  for (int seed = 0; seed < found.seeds; ++seed) {
    const auto source = prepared.source(static_cast<std::uint64_t>(seed));
    WINDLASS_ASSIGN_OR_RETURN(const auto results,
                              sim::simulate_cluster(*source, prepared.options(static_cast<std::uint64_t>(seed))));
    const sim::ServingResult::Slowdown& slowdown = results.front().slowdown.value();
    found.met += meets_all_nine(slowdown) ? 1 : 0;
    found.mean_ttft_p90 += slowdown.ttft.p90_s / found.seeds;
  }
  return found;
}

Result<std::string> splitwise_cluster_table(const std::string& data) {
  std::string text =
      "| prompt machines beside 3 token machines | seeds of 20 that meet all nine, `jsq` | slowdown of TTFT, P90 | the same, "
      "`jsq-tokens` | slowdown of TTFT, P90 |\n|---|---:|---:|---:|---:|\n";
  for (int machines = 23; machines <= 28; ++machines) {
    text += fmt::format("| {} |", machines);
    for (const char* dispatch : {"jsq", "jsq-tokens"}) {
      WINDLASS_ASSIGN_OR_RETURN(const SplitwiseSeeds found, splitwise_seeds(data, machines, dispatch));
      text += fmt::format(" {} | {:.2f} |", found.met, found.mean_ttft_p90);
    }
    text += "\n";
  }
  return text;
}

}  // namespace windlass::bench
