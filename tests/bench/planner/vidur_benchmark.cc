// Benchmarks of Vidur-Search over the paper's space, and of `auto`: a plan immediately, after two seconds, and replanning a
// thousand services. Uses data sheets, and once measured operators, read each time.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/strategies/strategies.h"
#include "planner/strategies/vidur/vidur.h"
#include "tests/bench/planner/vidur_setting.h"

namespace windlass::search {
namespace {

struct Asked {
  std::unique_ptr<DrawnRequests> requests;
  Problem problem;
};

// LLaMA2-70B with the lengths of Vidur's Chat-1M, on A100 and H100.
Asked asked(double requests_per_s, const std::vector<int>& stages) {
  Asked made;
  Problem& problem = made.problem;
  problem.name = "llama2-70b";
  problem.shape = planner::model_shape_by_name("llama2-70b").value();
  for (const char* name : {"h100-80gb", "a100-80gb"})
    problem.accelerators.push_back({planner::accelerator_by_name(name).value()});
  KindSpace space;
  space.tensor_parallel = {1, 2, 4};
  space.pipeline_stages = stages;
  problem.kinds = worker_kinds(problem.shape, problem.accelerators, space, roofline_models(problem.shape)).kinds;
  const auto by_mean_and_median = [](double mean, double median) {
    return workload::LogNormalTokens{mean, std::sqrt(mean / median * (mean / median) - 1), 4095};
  };
  auto lengths = workload::LengthDistribution::independent(by_mean_and_median(686, 417), by_mean_and_median(197, 139),
                                                           workload::ContextLimit{4096, true});
  made.requests = std::make_unique<DrawnRequests>(DrawnRequests::make(std::move(lengths).value()).value());
  problem.requests = made.requests.get();
  problem.requests_per_s = requests_per_s;
  problem.within_node = {300e9, 5e-6, 0, 0};
  problem.between_nodes = {25e9, 1e-4, 0, 0};
  return made;
}

// Two accelerators, TP and PP 1, 2, 4, three policies, five batch sizes, three chunk sizes, 16 GPUs; evaluates every capacity,
// or only those that can win.
void vidur(benchmark::State& state) {
  Asked made = asked(1, {1, 2, 4});
  made.problem.objectives.limits = {{Metric::kTtft, 90, 2}, {Metric::kTpot, 99, 0.2}};
  made.problem.max_gpus = 16;
  VidurOptions options;
  options.every_capacity = state.range(0) != 0;
  cli::ThreadExecutor executor;
  Effort effort;
  effort.executor = &executor;
  for (auto _ : state) {
    const auto found = vidur_search(made.problem, options, effort);
    if (!found.ok() || found->best < 0) return state.SkipWithError("no configuration was found");
    state.SetLabel(fmt::format("{} configurations; {} trials", found->points.size(), found->trials));
  }
}
BENCHMARK(vidur)
    ->ArgName("every_capacity")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

// The paper's own setting of LLaMA2-70B and Chat-1M: reads the operators of two accelerators, builds the kinds' models, and, if
// `searches`, searches.
void vidur_with_loading(benchmark::State& state, bool searches) {
  const char* given = std::getenv("WINDLASS_BENCH_DATA");
  const std::string data = given != nullptr ? given : "../shared/data";
  const auto models = bench::vidur_models();
  const auto workloads = bench::vidur_workloads();
  if (!models.ok() || !workloads.ok()) return state.SkipWithError("Vidur's setting cannot be made");
  cli::ThreadExecutor executor;
  Effort effort;
  effort.executor = &executor;
  for (auto _ : state) {
    const auto made = bench::vidur_problem(data, (*models)[2], workloads->front(), &executor);
    if (!made.ok()) return state.SkipWithError(made.error().message.c_str());
    if (!searches) continue;
    const auto found = vidur_search(made->problem, {}, effort);
    if (!found.ok() || found->best < 0) return state.SkipWithError("no configuration was found");
    state.SetLabel(fmt::format("{} configurations; {} trials", found->points.size(), found->trials));
  }
}
BENCHMARK_CAPTURE(vidur_with_loading, loading_alone, false)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(vidur_with_loading, and_search, true)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();

void plan_within(benchmark::State& state, double max_s) {
  Asked made = asked(60, {1});
  made.problem.objectives.both = sim::ServingObjectives{1, 0.05};
  cli::ThreadExecutor executor;
  double cost = 0;
  for (auto _ : state) {
    Effort effort;
    effort.executor = &executor;
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(max_s);
    effort.stop = [until] { return std::chrono::steady_clock::now() >= until; };
    const auto plan = (*strategy_by_name("auto"))->plan(made.problem, effort);
    if (!plan.ok() || !plan->holds) return state.SkipWithError("no deployment meets the objectives");
    cost = plan->cost_per_hour;
  }
  state.SetLabel(fmt::format("{:.4g} $ an hour", cost));
}
BENCHMARK_CAPTURE(plan_within, at_once, 0.0)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK_CAPTURE(plan_within, 2_s, 2.0)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK_CAPTURE(plan_within, 60_s, 60.0)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();

// A thousand services whose rates have changed by up to 2 % since their last plans.
void replan(benchmark::State& state) {
  constexpr int kServices = 1000;
  Asked made = asked(60, {1});
  made.problem.objectives.both = sim::ServingObjectives{1, 0.05};
  const auto plan = auto_plan(made.problem, {}, {});
  if (!plan.ok()) return state.SkipWithError("no plan");
  const AutoMemory memory = remember(made.problem, *plan);
  std::int64_t kept = 0;
  for (auto _ : state) {
    kept = 0;
    for (int i = 0; i < kServices; ++i) {
      Problem problem = made.problem;
      problem.requests_per_s = 60 * (1 + 0.02 * (i - kServices) / kServices);
      const auto again = auto_replan(problem, memory, {}, {});
      if (!again.ok()) return state.SkipWithError(again.error().message.c_str());
      kept += again->kept ? 1 : 0;
    }
  }
  state.SetLabel(fmt::format("{} of {} plans kept", kept, kServices));
}
BENCHMARK(replan)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();

}  // namespace
}  // namespace windlass::search
