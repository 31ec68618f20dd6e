// Vidur's what-if analysis (Agrawal et al., MLSys 2024, Section 7.3) by Vidur-Search: the best configuration of each model and
// workload, the cost of serving one workload with another's best, the cost of a tighter TBT, and the savings of early stops.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "controller/cli/charts/svg_chart.h"
#include "planner/strategies/vidur/vidur.h"
#include "tests/bench/planner/experiments.h"
#include "tests/bench/planner/vidur_setting.h"

namespace windlass::bench {
namespace {

using search::Effort;
using search::Problem;
using search::VidurFound;
using search::VidurLimits;
using search::VidurOptions;
using search::VidurPoint;

const VidurPoint& best_of(const VidurFound& found) { return found.points[static_cast<std::size_t>(found.best)]; }

std::string best_text(const Problem& problem, const VidurFound& found) {
  if (found.best < 0) return "none holds | |";
  const VidurPoint& point = best_of(found);
  return fmt::format("{} x {} | {:.1f} | {:.3f}", point.replicas, search::describe(problem, point), point.requests_per_s,
                     point.per_worth);
}

// Requests per second for one dollar per hour of a configuration.
Result<double> per_dollar(const Problem& problem, const VidurPoint& point, const Effort& effort, VidurOptions options) {
  Problem alone = problem;
  alone.kinds = {problem.kinds[static_cast<std::size_t>(point.kind)]};
  const int stages = alone.kinds.front().pipeline_stages;
  options.space.batchings = {point.engine.batching};
  options.space.batch_sizes = {point.engine.max_sequences * stages};
  options.space.chunk_tokens = {point.engine.max_batch_tokens};
  WINDLASS_ASSIGN_OR_RETURN(const VidurFound found, vidur_search(alone, options, effort));
  return found.best < 0 ? 0.0 : best_of(found).per_worth;
}

// The point with most requests per dollar within a TBT limit, among points with known capacities.
const VidurPoint* best_inside(const VidurFound& every, double tbt_s) {
  const VidurPoint* best = nullptr;
  for (const VidurPoint& point : every.points) {
    if (point.requests_per_s <= 0 || point.ttft_p90_s > 2 || point.tbt_p99_s > tbt_s) continue;
    if (best == nullptr || point.per_worth > best->per_worth) best = &point;
  }
  return best;
}

charts::ChartSeries series_of(const char* name, const VidurFound& every, double VidurPoint::*latency_s,
                              const std::vector<int>& points, bool joined) {
  charts::ChartSeries series;
  series.name = name;
  series.joined = joined;
  for (const int i : points) {
    const VidurPoint& point = every.points[static_cast<std::size_t>(i)];
    series.points.push_back({point.*latency_s, point.per_worth, {}, {}});
  }
  return series;
}

// The content of Fig. 1a, 1b and 6.
Result<std::vector<PlannerTable>> best_tables(const std::string& data, const Effort& effort) {
  WINDLASS_ASSIGN_OR_RETURN(const auto models, vidur_models());
  WINDLASS_ASSIGN_OR_RETURN(const auto workloads, vidur_workloads());
  const VidurOptions inside;
  std::string best = "| model | workload | best deployment | requests/s | for a $/h |\n|---|---|---|---:|---:|\n";
  std::string wrong =
      "| LLaMA2-70B, cost over its own best | by Chat-1M's best | by Arxiv-4K's | by BWB-4K's |\n|---|---:|---:|---:|\n";
  for (const VidurModel& model : models) {
    std::vector<VidurProblem> problems;
    std::vector<VidurPoint> winners;
    for (const VidurWorkload& workload : workloads) {
      WINDLASS_ASSIGN_OR_RETURN(VidurProblem made, vidur_problem(data, model, workload, effort.executor));
      WINDLASS_ASSIGN_OR_RETURN(const VidurFound found, vidur_search(made.problem, inside, effort));
      best += fmt::format("| {} | {} | {} |\n", model.name, workload.name, best_text(made.problem, found));
      if (found.best >= 0) winners.push_back(best_of(found));
      problems.push_back(std::move(made));
    }
    if (model.name != "LLaMA2-70B" || winners.size() != workloads.size()) continue;
    for (std::size_t served = 0; served < workloads.size(); ++served) {
      wrong += fmt::format("| {} |", workloads[served].name);
      for (const VidurPoint& tuned : winners) {
        WINDLASS_ASSIGN_OR_RETURN(const double other, per_dollar(problems[served].problem, tuned, effort, inside));
        wrong += other > 0 ? fmt::format(" {:.2f} |", winners[served].per_worth / other) : std::string(" never |");
      }
      wrong += "\n";
    }
  }
  return std::vector<PlannerTable>{{"vidur-best", best, "md"}, {"vidur-misconfiguration", wrong, "md"}};
}

// Most requests per dollar within TTFT P90 < 2 s and ever tighter TBTs, by both interpretations of the limits (Fig. 5a).
Result<PlannerTable> tbt_table(const VidurProblem& made, const VidurFound& every, const Effort& effort) {
  std::string tbt =
      "| TBT P99 below | best, limits looked at at its capacity (the paper) | for a $/h | best, limits part of the capacity "
      "| requests/s | for a $/h |\n|---|---|---:|---|---:|---:|\n";
  for (const double tbt_s : {0.03, 0.04, 0.05, 0.06, 0.08, 0.10, 0.12, 0.14, 0.16, 0.18, 0.20}) {
    const VidurPoint* point = best_inside(every, tbt_s);
    Problem tighter = made.problem;
    tighter.objectives.limits.back().most = tbt_s;
    WINDLASS_ASSIGN_OR_RETURN(const VidurFound ours, vidur_search(tighter, VidurOptions{}, effort));
    tbt += fmt::format("| {:.2f} s | {} | {} |\n", tbt_s,
                       point == nullptr ? std::string("none |")
                                        : fmt::format("{} | {:.3f}", search::describe(made.problem, *point), point->per_worth),
                       best_text(tighter, ours));
  }
  return PlannerTable{"vidur-tbt", tbt, "md"};
}

// Every capacity of one model and workload: Pareto fronts, and the savings of early stops.
Result<std::vector<PlannerTable>> front_tables(const VidurProblem& made, const std::string& name, const Effort& effort,
                                               VidurFound& every, std::string& stops) {
  VidurOptions options;
  WINDLASS_ASSIGN_OR_RETURN(const VidurFound quick, vidur_search(made.problem, options, effort));
  options.every_capacity = true;
  WINDLASS_ASSIGN_OR_RETURN(const VidurFound all_inside, vidur_search(made.problem, options, effort));
  options.limits = VidurLimits::kAtCapacity;
  WINDLASS_ASSIGN_OR_RETURN(every, vidur_search(made.problem, options, effort));
  double most = 0;
  for (const VidurPoint& point : every.points) {
    if (point.requests_per_s > 0) most = std::max(most, point.requests_per_s / point.replicas / point.steady_requests_per_s);
  }
  stops += fmt::format("| {} | {} | {} | {:.1f} | {} | {:.1f} | {} | {:.3f} |\n", made.problem.name, quick.points.size(),
                       all_inside.trials, static_cast<double>(all_inside.iterations) / 1e6, quick.trials,
                       static_cast<double>(quick.iterations) / 1e6, all_inside.best == quick.best ? "yes" : "no", most);
  std::vector<int> all;
  for (int i = 0; i < static_cast<int>(every.points.size()); ++i) {
    if (every.points[static_cast<std::size_t>(i)].requests_per_s > 0) all.push_back(i);
  }
  std::vector<PlannerTable> tables;
  for (const auto& [latency, axis, of] : {std::tuple(&VidurPoint::ttft_p90_s, "TTFT P90 (s)", "ttft"),
                                          std::tuple(&VidurPoint::tbt_p99_s, "TBT P99 (s)", "tbt")}) {
    charts::Chart chart;
    chart.title = made.problem.name;
    chart.x_label = axis;
    chart.y_label = "requests/s for a $/h";
    chart.x_log = true;
    chart.series = {series_of("configurations", every, latency, all, false),
                    series_of("Pareto front", every, latency, pareto_front(every, latency), true)};
    tables.push_back({fmt::format("vidur-{}-{}", name, of), charts::svg_of(chart), "svg"});
  }
  return tables;
}

}  // namespace

Result<std::vector<PlannerTable>> vidur_tables(const std::string& data, Executor& executor) {
  Effort effort;
  effort.executor = &executor;
  WINDLASS_ASSIGN_OR_RETURN(const auto models, vidur_models());
  WINDLASS_ASSIGN_OR_RETURN(const auto workloads, vidur_workloads());
  WINDLASS_ASSIGN_OR_RETURN(std::vector<PlannerTable> tables, best_tables(data, effort));
  std::string stops =
      "| | configurations | every capacity: trials | million iterations | with early stops: trials | million "
      "iterations | the same winner | largest capacity over steady rate |\n|---|---:|---:|---:|---:|---:|---|---:|\n";
  for (const auto& [model, workload, name] : {std::tuple(2, 0, "llama2-70b-chat"), std::tuple(3, 1, "qwen-72b-arxiv")}) {
    WINDLASS_ASSIGN_OR_RETURN(const VidurProblem made, vidur_problem(data, models[static_cast<std::size_t>(model)],
                                                                     workloads[static_cast<std::size_t>(workload)], &executor));
    VidurFound every;
    WINDLASS_ASSIGN_OR_RETURN(auto fronts, front_tables(made, name, effort, every, stops));
    tables.insert(tables.end(), fronts.begin(), fronts.end());
    if (workload != 0) continue;
    WINDLASS_ASSIGN_OR_RETURN(auto tbt, tbt_table(made, every, effort));
    tables.push_back(std::move(tbt));
  }
  tables.push_back({"vidur-early-stops", stops, "md"});
  return tables;
}

}  // namespace windlass::bench
