// Benchmarks of Splitwise's search, as in Fig. 12: BLOOM-176B on H100 machines for the code service at 70 requests/s, three
// trials of 8,400 requests per deployment. On one thread and on the executor's.
#include <cstdlib>
#include <string>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/splitwise/splitwise.h"
#include "tests/bench/planner/splitwise_setting.h"

namespace windlass::bench {
namespace {

void splitwise_figure_twelve(benchmark::State& state) {
  const char* data = std::getenv("WINDLASS_BENCH_DATA");
  const auto setting = splitwise_setting(data != nullptr ? data : "../shared/data", "bloom-176b", "code", 70);
  if (!setting.ok()) {
    state.SkipWithError(setting.error().message.c_str());
    return;
  }
  cli::ThreadExecutor executor(static_cast<int>(state.range(0)));
  search::Effort effort;
  effort.executor = &executor;
  search::SplitwiseOptions options;
  options.machines = {kH100Machine};
  search::Offer last;
  for (auto _ : state) {
    auto plan = search::splitwise_plan(setting->problem, effort, options);
    if (!plan.ok() || !plan->holds) {
      state.SkipWithError(plan.ok() ? "no deployment meets the objectives" : plan.error().message.c_str());
      return;
    }
    last = std::move(plan).value();
  }
  state.SetLabel(fmt::format("{} trials; {} machines", last.trials, last.gpus / 8));
}
BENCHMARK(splitwise_figure_twelve)->ArgName("threads")->Arg(1)->Arg(0)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace windlass::bench
