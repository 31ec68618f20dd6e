// Benchmarks of DistServe's search, as in Fig. 12: the time of Algorithms 1 and 2 by the GPUs that an instance may have, with
// 300 requests per probe. Runs on the executor's threads, like `windlass plan`.
#include <cstdlib>
#include <string>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/distserve/distserve.h"
#include "tests/bench/planner/distserve_setting.h"

namespace windlass::bench {
namespace {

constexpr int kRequestsPerProbe = 300;

// Arguments: nodes, GPUs per node, algorithm.
void search_time(benchmark::State& state, const char* model) {
  const char* data = std::getenv("WINDLASS_BENCH_DATA");
  DistServeSpec spec;
  spec.model = model;
  spec.nodes = static_cast<int>(state.range(0));
  spec.gpus_per_node = static_cast<int>(state.range(1));
  const auto setting = distserve_setting(data != nullptr ? data : "../shared/data", spec);
  if (!setting.ok()) {
    state.SkipWithError(setting.error().message.c_str());
    return;
  }
  cli::ThreadExecutor executor(0);
  search::Effort effort;
  effort.executor = &executor;
  search::DistServeOptions options;
  options.requests_per_probe = kRequestsPerProbe;
  options.finals = 0;
  options.affinity = state.range(2) == 1 ? search::NodeAffinity::kHigh : search::NodeAffinity::kLow;
  search::DistServeChoice last;
  for (auto _ : state) {
    auto choice = search::distserve_choice(setting->problem, effort, options);
    if (!choice.ok()) {
      state.SkipWithError(choice.error().message.c_str());
      return;
    }
    last = std::move(choice).value();
  }
  state.SetLabel(fmt::format("{} trials", last.trials));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int algorithm : {1, 2}) {
    benchmark->Args({1, 2, algorithm})->Args({1, 4, algorithm})->Args({1, 8, algorithm});
    benchmark->Args({2, 8, algorithm})->Args({4, 8, algorithm});
  }
  benchmark->ArgNames({"nodes", "gpus", "algorithm"})->Unit(benchmark::kMillisecond)->UseRealTime()->MeasureProcessCPUTime();
}

BENCHMARK_CAPTURE(search_time, opt13b, "opt-13b")->Apply(sizes)->Name("distserve_search/opt-13b");

void large(benchmark::internal::Benchmark* benchmark) {
  for (const int algorithm : {1, 2}) benchmark->Args({1, 8, algorithm})->Args({4, 8, algorithm});
  benchmark->ArgNames({"nodes", "gpus", "algorithm"})->Unit(benchmark::kMillisecond)->UseRealTime()->MeasureProcessCPUTime();
}

BENCHMARK_CAPTURE(search_time, opt66b, "opt-66b")->Apply(large)->Name("distserve_search/opt-66b");

}  // namespace
}  // namespace windlass::bench
