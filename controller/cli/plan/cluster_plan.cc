// See cluster_plan.h.
#include "controller/cli/plan/cluster_plan.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/cli/console/scenario_files.h"
#include "controller/cli/console/text_file.h"
#include "controller/cli/console/thread_executor.h"
#include "controller/cli/plan/cluster_page.h"
#include "controller/cli/plan/cluster_text.h"
#include "controller/cli/plan/strategy_run.h"
#include "metrics/host/whole_file.h"
#include "planner/strategies/cluster_strategies.h"
#include "planner/whatif/cluster_plan_json.h"
#include "planner/whatif/cluster_scenario.h"

namespace windlass::cli {
namespace {

constexpr const char* kWanted = "a CLUSTER file (docs/plan.md)";
constexpr double kTimeLimit_s = 600;  // a ceiling: searches end before, when nothing improves

Result<hetero::PreparedCluster> read_cluster(const StrategyFlags& flags) {
  if (flags.files.size() > 1) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("-f: found {} files, allowed is one CLUSTER", flags.files.size())};
  }
  const std::string& path = flags.files.front();
  WINDLASS_ASSIGN_OR_RETURN(const std::string yaml, read_text_file(path, kWanted));
  WINDLASS_ASSIGN_OR_RETURN(auto scenario, hetero::parse_cluster_scenario(yaml, path));
  WINDLASS_ASSIGN_OR_RETURN(const auto texts, read_scenario_files(path, scenario.plan.scenario));
  return hetero::PreparedCluster::make(std::move(scenario), texts);
}

ClusterOutcome run(StrategyRunner& runner, const hetero::NamedClusterStrategy& strategy,
                   const hetero::ClusterProblem& problem) {
  ClusterOutcome outcome;
  runner.run(
      strategy.name,
      [&](const search::Effort& effort) -> Result<void> {
        WINDLASS_ASSIGN_OR_RETURN(outcome.placed.emplace().plan, strategy.plan(problem, effort));
        return {};
      },
      outcome);
  if (!outcome.error.empty()) {
    outcome.placed.reset();
  } else {
    outcome.placed->trial = hetero::trial_of(problem, outcome.placed->plan);
  }
  return outcome;
}

std::vector<ClusterOutcome> run_all(const StrategyFlags& flags, StrategyRunner& runner, const hetero::ClusterProblem& problem) {
  std::vector<ClusterOutcome> outcomes;
  const auto wanted = [&](std::string_view name, bool first) {
    return flags.compare || (flags.strategy.empty() ? first : flags.strategy == name);
  };
  for (const hetero::NamedClusterStrategy& strategy : hetero::cluster_strategies()) {
    if (wanted(strategy.name, &strategy == hetero::cluster_strategies().data())) {
      outcomes.push_back(run(runner, strategy, problem));
    }
  }
  for (const search::NamedStrategy& strategy : search::strategies()) {
    if (!wanted(strategy.name, false)) continue;
    ClusterOutcome& outcome = outcomes.emplace_back();
    static_cast<StrategyOutcome&>(outcome) = runner.run(strategy, *problem.search);
  }
  return outcomes;
}

// Strategies that place on a cluster have one goal. Why the one that was asked for is none; empty: it is.
std::string objection_to_goal(const StrategyFlags& flags) {
  if (flags.compare || flags.goal.empty() || flags.goal == to_string(search::Goal::kThroughput)) return {};
  for (const hetero::NamedClusterStrategy& strategy : hetero::cluster_strategies()) {
    if (!flags.strategy.empty() && flags.strategy != strategy.name) continue;
    return fmt::format(
        "--goal: found {}; {} places for the most requests per second: allowed is throughput, or another --strategy",
        flags.goal, strategy.name);
  }
  return {};
}

nlohmann::ordered_json json_of(const hetero::ClusterProblem& problem, const ClusterOutcome& outcome) {
  if (!outcome.placed) return json_of(*problem.search, static_cast<const StrategyOutcome&>(outcome));
  return hetero::to_json(problem, outcome.placed->plan, outcome.placed->trial, outcome.wall_s);
}

void print(const StrategyFlags& flags, const hetero::ClusterProblem& problem, const std::vector<ClusterOutcome>& outcomes,
           const std::vector<std::string>& notes, Console& console) {
  const ClusterOutcome& first = outcomes.front();
  if (flags.output == "table") {
    if (flags.compare) {
      console.out << cluster_comparison_table(problem, outcomes);
    } else {
      console.out << (first.placed ? placement_table(problem, first, notes) : strategy_table(*problem.search, first));
    }
    return;
  }
  nlohmann::ordered_json json;
  if (flags.compare) {
    json["strategies"] = nlohmann::ordered_json::array();
    for (const ClusterOutcome& outcome : outcomes) json["strategies"].push_back(json_of(problem, outcome));
  } else {
    json = json_of(problem, first);
  }
  print_structured(json, flags.output, console);
}

}  // namespace

Result<bool> holds_cluster_file(const std::string& path) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string yaml, read_text_file(path, kWanted));
  return hetero::holds_cluster(yaml);
}

int plan_on_cluster(const StrategyFlags& flags, double time_limit_s, Console& console) {
  const auto fail = [&](const std::string& message, int code) {
    console.err << message << "\n";
    return code;
  };
  if (const std::string objection = objection_to_goal(flags); !objection.empty()) return fail(objection, kUsage);
  auto prepared = read_cluster(flags);
  if (!prepared.ok()) return fail(prepared.error().message, kFailed);
  take_flags(flags, prepared->search());
  const hetero::ClusterProblem problem = prepared->problem();

  ThreadExecutor executor(flags.jobs);
  std::vector<ClusterOutcome> outcomes;
  {
    ProgressLine line(console);
    StrategyRunner runner(executor, time_limit_s > 0 ? time_limit_s : kTimeLimit_s, line);
    outcomes = run_all(flags, runner, problem);
  }
  const auto any = [&](auto is) { return std::any_of(outcomes.begin(), outcomes.end(), is); };
  if (!any([](const ClusterOutcome& outcome) { return outcome.planned(); })) {
    for (const ClusterOutcome& outcome : outcomes) console.err << outcome.strategy << ": " << outcome.error << "\n";
    return any([](const ClusterOutcome& outcome) { return !outcome.infeasible; }) ? kFailed : kInfeasible;
  }
  if (!flags.report.empty()) {
    const auto written = write_whole_file(flags.report, cluster_page(problem, outcomes, prepared->notes()));
    if (!written.ok()) return fail(written.error().message, kFailed);
  }
  print(flags, problem, outcomes, prepared->notes(), console);
  return any([](const ClusterOutcome& outcome) { return outcome.planned() && outcome.holds(); }) ? kDone : kInfeasible;
}

}  // namespace windlass::cli
