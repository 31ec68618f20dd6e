// Reads the inputs, runs the strategies and prints their plans; see strategy_plan.h.
#include "controller/cli/plan/strategy_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/cli/console/object_files.h"
#include "controller/cli/console/progress_line.h"
#include "controller/cli/console/scenario_files.h"
#include "controller/cli/console/thread_executor.h"
#include "controller/cli/plan/plan_snapshot.h"
#include "controller/cli/plan/strategy_page.h"
#include "controller/cli/plan/strategy_run.h"
#include "controller/cli/plan/strategy_text.h"
#include "metrics/host/whole_file.h"
#include "planner/base/yaml_reader.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/strategies.h"
#include "planner/whatif/cluster_scenario.h"
#include "planner/whatif/placing_strategies.h"
#include "planner/whatif/plan_scenario.h"
#include "planner/whatif/question.h"

namespace windlass::cli {
namespace {

constexpr std::array kRateFactors = {0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0};
constexpr std::size_t kCurves = 4;           // the plan and its nearest runners-up
constexpr double kClusterTimeLimit_s = 600;  // upper bound: searches end earlier when nothing improves
constexpr const char* kScenarioWanted = "a SCENARIO without cluster, a CLUSTER (docs/plan.md), or a ModelService";

Result<search::Question> question_in_scenario(const std::vector<std::string>& files, Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(const ScenarioInput input, read_scenario_input(files, "one SCENARIO without cluster or CLUSTER"));
  if (hetero::holds_cluster(input.yaml)) {
    WINDLASS_ASSIGN_OR_RETURN(auto scenario, hetero::parse_cluster_scenario(input.yaml, input.path, input.accelerators));
    WINDLASS_ASSIGN_OR_RETURN(const auto texts, read_scenario_files(input.path, scenario.plan.scenario, executor));
    return question_of(std::move(scenario), texts, &executor);
  }
  WINDLASS_ASSIGN_OR_RETURN(auto plan, search::parse_plan_scenario(input.yaml, input.path, input.accelerators));
  WINDLASS_ASSIGN_OR_RETURN(const auto texts, read_scenario_files(input.path, plan.scenario, executor));
  return question_of(std::move(plan), texts, &executor);
}

// The nodes of the classes whose GPUs the files count, each with the class's GPUs per node. `of_catalog`: classes that are not
// in the files.
std::vector<planner::NodeState> nodes_in_files(const planner::Service& service,
                                               const std::vector<planner::AcceleratorState>& accelerators) {
  constexpr int kNotSaid = std::numeric_limits<int>::max();
  std::vector<planner::NodeState> nodes;
  for (const planner::AcceleratorState& state : accelerators) {
    const std::string& name = state.spec.name;
    int gpus = state.max_gpus.value_or(kNotSaid);
    if (gpus == kManyGpus) gpus = kNotSaid;  // of the catalog
    for (const planner::AllowedAccelerator& allowed : service.accelerators) {
      if (allowed.accelerator == name) gpus = std::min(gpus, allowed.max_gpus.value_or(kNotSaid));
    }
    if (gpus != kNotSaid) search::add_nodes(state.spec, gpus, nodes);
  }
  return nodes;
}

Result<search::Question> question_of_service(const StrategyFlags& flags, std::ostream& notes) {
  WINDLASS_ASSIGN_OR_RETURN(planner::Snapshot snapshot, plan_snapshot(flags.files, notes));
  if (snapshot.services.size() != 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the files must hold one ModelService for a strategy (got {})", snapshot.services.size())};
  }
  planner::Service& service = snapshot.services.front();
  if (flags.rate_per_s > 0) service.workload.requests_per_s = flags.rate_per_s;
  const auto strategy = search::strategy_by_name(flags.strategy);
  if (!strategy.ok() || !(*strategy)->needs_cluster) return search::question_of(service, snapshot.accelerators);
  const auto nodes = nodes_in_files(service, snapshot.accelerators);
  if (nodes.empty()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{}: must say how many GPUs there are, for the nodes that --strategy {} places on: in `maxGPUs` of "
                    "spec.accelerators, or in `capacity.maxGPUs` of an AcceleratorClass",
                    flags.files.front(), flags.strategy)};
  }
  return search::question_of(service, snapshot.accelerators, nodes);
}

Result<search::Question> read_question(const StrategyFlags& flags, std::ostream& notes, Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(const bool objects, holds_objects(flags.files));
  return objects ? question_of_service(flags, notes) : question_in_scenario(flags.files, executor);
}

// Plans that meet the objectives first, each kind by cost.
const StrategyOutcome* best_of(const search::Problem& problem, const std::vector<StrategyOutcome>& outcomes) {
  const StrategyOutcome* best = nullptr;
  for (const StrategyOutcome& outcome : outcomes) {
    if (!outcome.plan) continue;
    if (best != nullptr) {
      const bool better_class = outcome.plan->holds && !best->plan->holds;
      const bool same_class = outcome.plan->holds == best->plan->holds;
      const bool cheaper =
          search::worth_of(problem, outcome.plan->deployment) < search::worth_of(problem, best->plan->deployment);
      if (!better_class && !(same_class && cheaper)) continue;
    }
    best = &outcome;
  }
  return best;
}

std::vector<RateCurve> rate_curves(const search::Problem& problem, const search::Offer& plan, Executor& executor) {
  std::vector<search::Deployment> shown = {plan.deployment};
  for (const search::Rejection& other : plan.considered) {
    if (shown.size() < kCurves) shown.push_back(other.deployment);
  }
  const std::size_t count = shown.size() * kRateFactors.size();
  const auto attained = parallel_map<std::optional<double>>(executor, count, [&](std::size_t i) -> std::optional<double> {
    const double rate = problem.requests_per_s * kRateFactors[i % kRateFactors.size()];
    const auto result =
        search::try_out(problem, shown[i / kRateFactors.size()], {rate, problem.requests_per_trial, problem.seed});
    return result.ok() ? std::optional(result->attainment) : std::nullopt;
  });
  std::vector<RateCurve> curves;
  for (std::size_t c = 0; c < shown.size(); ++c) {
    RateCurve curve{c == 0 ? "the plan" : fmt::format("runner-up {}", c), describe(shown[c]), {}};
    for (std::size_t f = 0; f < kRateFactors.size(); ++f) {
      const auto& share = (*attained)[c * kRateFactors.size() + f];
      if (share) curve.points.push_back({problem.requests_per_s * kRateFactors[f], *share});
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

void print(const StrategyFlags& flags, const search::Problem& problem, const std::vector<StrategyOutcome>& outcomes,
           const std::vector<std::string>& notes, Console& console) {
  if (flags.output == "table") {
    console.out << (flags.compare ? comparison_table(problem, outcomes) : strategy_table(problem, outcomes.front(), notes));
    return;
  }
  nlohmann::ordered_json json;
  if (flags.compare) {
    json["strategies"] = nlohmann::ordered_json::array();
    for (const StrategyOutcome& outcome : outcomes) json["strategies"].push_back(json_of(problem, outcome));
  } else {
    json = json_of(problem, outcomes.front());
  }
  print_structured(json, flags.output, console);
}

// On a cluster, strategies that place on its nodes come first, and the first of them is the default.
std::vector<const search::NamedStrategy*> wanted_strategies(const StrategyFlags& flags, const search::Problem& problem) {
  const bool on_cluster = problem.cluster != nullptr;
  std::vector<const search::NamedStrategy*> all, wanted;
  for (const search::NamedStrategy& strategy : search::strategies()) all.push_back(&strategy);
  if (on_cluster) std::stable_partition(all.begin(), all.end(), [](const auto* strategy) { return strategy->needs_cluster; });
  for (const search::NamedStrategy* strategy : all) {
    const bool named = flags.strategy.empty() ? strategy == all.front() : flags.strategy == strategy->name;
    if (flags.compare ? on_cluster || !strategy->needs_cluster : named) wanted.push_back(strategy);
  }
  return wanted;
}

struct Objection {
  std::string message;
  int exit_code = kFailed;
};

// Why a strategy that places on nodes cannot run: there is no cluster, or it has a goal of its own.
std::optional<Objection> objection_to(const StrategyFlags& flags, const search::Problem& problem,
                                      const search::NamedStrategy& strategy) {
  if (!strategy.needs_cluster || flags.compare) return std::nullopt;
  if (problem.cluster == nullptr) {
    return Objection{
        fmt::format("{}: must have a cluster for --strategy {} (got none): "
                    "`cluster: {{nodes: [{{name, accelerator, gpus}}], links: {{default: {{GBps, latency}}}}}}` (docs/plan.md)",
                    flags.files.front(), flags.strategy)};
  }
  if (!strategy.takes_all_gpus || flags.goal.empty() || flags.goal == to_string(search::Goal::kThroughput)) return std::nullopt;
  return Objection{
      fmt::format("--goal: must be throughput for {} (got {}); or choose another --strategy", strategy.name, flags.goal),
      kUsage};
}

// Overrides the file's goal and rate.
void take_flags(const StrategyFlags& flags, search::Problem& problem) {
  for (const search::Goal goal : {search::Goal::kCost, search::Goal::kPower, search::Goal::kThroughput}) {
    if (flags.goal == search::to_string(goal)) problem.goal = goal;
  }
  if (flags.rate_per_s > 0) problem.requests_per_s = flags.rate_per_s;
}

}  // namespace

Result<bool> holds_objects(const std::vector<std::string>& files) {
  WINDLASS_ASSIGN_OR_RETURN(const bool scenario, holds_scenario(files, kScenarioWanted));
  return !scenario;
}

int plan_by_strategy(const StrategyFlags& flags, Console& console) {
  const auto fail = [&](const std::string& message, int code) {
    console.err << message << "\n";
    return code;
  };
  double time_limit_s = 0;
  if (!flags.time_limit.empty()) {
    const auto limit = duration_seconds(flags.time_limit);
    if (!limit || !(*limit > 0)) {
      return fail(
          fmt::format("windlass plan: --time-limit: must be a duration above 0 such as 10s (got '{}')", flags.time_limit),
          kUsage);
    }
    time_limit_s = *limit;
  }
  ThreadExecutor executor(flags.jobs);
  auto question = read_question(flags, console.err, executor);
  if (!question.ok()) return fail(question.error().message, kFailed);
  search::Problem& problem = question->problem();
  const std::vector<const search::NamedStrategy*> wanted = wanted_strategies(flags, problem);
  if (const auto objection = objection_to(flags, problem, *wanted.front()))
    return fail(objection->message, objection->exit_code);
  take_flags(flags, problem);
  if (problem.cluster != nullptr && time_limit_s == 0) time_limit_s = kClusterTimeLimit_s;

  std::vector<StrategyOutcome> outcomes;
  {
    ProgressLine line(console);
    StrategyRunner runner(executor, time_limit_s, line);
    for (const search::NamedStrategy* strategy : wanted) outcomes.push_back(runner.run(*strategy, problem));
    if (!flags.compare && outcomes.front().plan) {
      line.tell([](double) { return std::string("how sure the figures are"); });
      search::add_interval(problem, executor, *outcomes.front().plan);
    }
  }
  const StrategyOutcome* best = best_of(problem, outcomes);
  if (best == nullptr) {
    for (const StrategyOutcome& outcome : outcomes) console.err << outcome.strategy << ": " << outcome.error << "\n";
    const bool infeasible =
        std::all_of(outcomes.begin(), outcomes.end(), [](const auto& outcome) { return outcome.infeasible; });
    return infeasible ? kInfeasible : kFailed;
  }
  if (!flags.report.empty()) {
    std::vector<RateCurve> curves;
    if (problem.cluster == nullptr) curves = rate_curves(problem, *best->plan, executor);
    const std::string page = strategy_page(problem, outcomes, curves, question->notes());
    const auto written = write_whole_file(flags.report, page);
    if (!written.ok()) return fail(written.error().message, kFailed);
  }
  print(flags, problem, outcomes, question->notes(), console);
  return best->plan->holds ? kDone : kInfeasible;
}

}  // namespace windlass::cli
