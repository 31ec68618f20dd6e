// Benchmarks of the serving simulator: iterations per second by latency model and batching, whole scenarios, memory,
// replications. `scripts/bench serving` runs them and writes docs/benchmarks.md. Rows that need measured data read it from the
// folder in WINDLASS_BENCH_DATA and are omitted without it.
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/whatif/scenario.h"
#include "planner/whatif/scenario_yaml.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::sim {
namespace {

std::string data() {
  const char* folder = std::getenv("WINDLASS_BENCH_DATA");
  return folder == nullptr ? std::string() : std::string(folder);
}

Result<PreparedScenario> prepare(const std::string& yaml) {
  WINDLASS_ASSIGN_OR_RETURN(Scenario scenario, parse_scenario(yaml, "benchmark"));
  std::map<std::string, std::string> texts;
  for (const ScenarioFile& file : files_of(scenario)) {
    WINDLASS_ASSIGN_OR_RETURN(texts[file.path], bench::read_text(file.path));
  }
  return PreparedScenario::make(std::move(scenario), texts);
}

void simulate(benchmark::State& state, const std::string& yaml) {
  const auto prepared = prepare(yaml);
  if (!prepared.ok()) return state.SkipWithError(prepared.error().message.c_str());
  ServingResult result;
  for (auto _ : state) {
    const auto source = prepared->source(1);
    auto run = simulate_cluster(*source, prepared->options(1));
    if (!run.ok()) return state.SkipWithError(run.error().message.c_str());
    result = std::move(run->front());
  }
  state.SetItemsProcessed(state.iterations() * result.iterations);
  state.counters["requests"] = static_cast<double>(result.requests);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_mib"] = static_cast<double>(usage.ru_maxrss / 1024);
}

std::string scenario(const std::string& latency, const std::string& batching, int workers, double rate, std::int64_t requests,
                     const std::string& accelerator = "l40s") {
  return "model: {name: llama3-8b}\nlatency: {" + latency +
         "}\nworkload:\n  inputTokens: {distribution: lognormal, mean: 500, cv: 1, max: 4000}\n" +
         "  outputTokens: {distribution: lognormal, mean: 150, cv: 1, max: 1500}\n  requestsPerSecond: " +
         std::to_string(rate) + "\n  requests: " + std::to_string(requests) +
         "\ncluster:\n  pools:\n  - {accelerator: " + accelerator + ", workers: " + std::to_string(workers) +
         "}\nscheduling: {batching: " + batching + "}\n";
}

// Replications of one scenario on all cores and on one; the ratio is the speed-up.
void replications(benchmark::State& state) {
  const auto prepared = prepare(scenario("source: linear", "vllm", 4, 12, 5'000));
  if (!prepared.ok()) return state.SkipWithError(prepared.error().message.c_str());
  cli::ThreadExecutor executor(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    const auto results = parallel_map<double>(executor, 16, [&](std::size_t seed) {
      const auto source = prepared->source(seed);
      return simulate_cluster(*source, prepared->options(seed))->front().ttft.mean_s;
    });
    benchmark::DoNotOptimize(results.ok());
  }
}

void add(const std::string& name, const std::string& yaml, benchmark::TimeUnit unit = benchmark::kMillisecond) {
  benchmark::RegisterBenchmark(name.c_str(), [yaml](benchmark::State& state) { simulate(state, yaml); })->Unit(unit);
}

void register_all() {
  for (const char* batching : {"vllm", "vllm-v1", "sarathi", "mixed", "orca", "static"})
    add(std::string("simulate/linear/") + batching, scenario("source: linear", batching, 4, 12, 20'000));
  add("simulate/roofline/vllm", scenario("source: roofline", "vllm", 4, 12, 20'000));
  add("simulate/linear/requests:1000000/workers:1000", scenario("source: linear", "vllm", 1000, 3000, 1'000'000),
      benchmark::kSecond);
  benchmark::RegisterBenchmark("replications/threads", replications)
      ->Arg(1)
      ->Arg(0)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  if (data().empty()) return;
  add("simulate/operators/vllm",
      scenario("source: operators, file: " + data() + "/profiles/operators/h100_sxm", "vllm", 4, 60, 20'000, "h100-80gb"));
  add("simulate/splitwise_conv/machines:40/requests_per_s:130",
      "model: {name: bloom-176b}\nlatency: {source: profile, file: " + data() + "/profiles/splitwise/perf_model.csv}\n" +
          "workload: {trace: " + data() + "/traces/AzureLLMInferenceTrace_conv.csv, requestsPerSecond: 130, duration: 120s}\n" +
          "cluster:\n  pools:\n  - {role: prefill, accelerator: h100-80gb, gpusPerWorker: 8, workers: 25}\n" +
          "  - {role: decode, accelerator: h100-80gb, gpusPerWorker: 8, workers: 15}\n" +
          "  link: {bandwidthGBps: 200, latency: 5us}\nscheduling: {mixedPool: true}\n");
}

}  // namespace
}  // namespace windlass::sim

int main(int argc, char** argv) {
  windlass::sim::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
