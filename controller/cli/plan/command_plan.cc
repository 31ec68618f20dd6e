// `windlass plan`: prints the plan for YAML files or a live controller's snapshot, or the plan that a strategy finds for a
// ModelService, a SCENARIO without `cluster` or a CLUSTER file. Changes nothing.
#include <optional>
#include <ostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "controller/api/yaml.h"
#include "controller/cli/console/chain_choice.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/plan_text.h"
#include "controller/cli/console/progress_line.h"
#include "controller/cli/console/text_file.h"
#include "controller/cli/console/thread_executor.h"
#include "controller/cli/plan/plan_snapshot.h"
#include "controller/cli/plan/strategy_plan.h"
#include "controller/cli/plan/what_if_text.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "planner/strategies/strategies.h"
#include "planner/whatif/offer_book.h"
#include "planner/whatif/snapshot_edits.h"

namespace windlass::cli {
namespace {

struct PlanOptions {
  std::vector<std::string> files;
  std::string snapshot;
  std::string output = "table";
  double rate_per_s = -1;
  std::optional<std::string> what_if;
  StrategyFlags by_strategy;  // the flags shared with the above are copied into it before it runs
};

// Whether a strategy must plan: one was named, or the file is a SCENARIO, which only strategies can plan.
Result<bool> wants_strategy(const PlanOptions& options) {
  const StrategyFlags& flags = options.by_strategy;
  const bool asked =
      !flags.strategy.empty() || !flags.goal.empty() || !flags.time_limit.empty() || flags.compare || !flags.report.empty();
  if (asked || !options.snapshot.empty()) return asked;
  WINDLASS_ASSIGN_OR_RETURN(const bool objects, holds_objects(options.files));
  return !objects;
}

// `notes`: remarks on the plan's inputs.
Result<planner::Snapshot> snapshot_of(const PlanOptions& options, std::ostream& notes) {
  if (!options.snapshot.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string text,
                              read_text_file(options.snapshot, "a file with a controller's /v1/snapshot"));
    auto snapshot = planner::snapshot_from_json(text);
    if (!snapshot.ok()) return snapshot.error().within(options.snapshot);
    return snapshot;
  }
  return plan_snapshot(options.files, notes);
}

struct PlanAnswer {
  std::string text;
  int exit_code = kDone;
};

// Asks the strategies, as the controller does.
Result<void> attach_offers(planner::Snapshot& snapshot, int jobs, Console& console) {
  ProgressLine line(console);
  search::OfferBook book;
  ThreadExecutor executor(jobs);
  search::Effort effort;
  effort.executor = &executor;
  return search::attach_all_offers(book, snapshot, effort, [&](const search::OfferQuestion& question) {
    line.tell([&](double elapsed_s) {
      return fmt::format("{}/{}: the strategies are searching ({:.0f} s)", question.service.id.name_space,
                         question.service.id.name, elapsed_s);
    });
  });
}

// Exit codes are those of the edited plan.
Result<PlanAnswer> what_if_answer(const PlanOptions& options, const planner::Snapshot& snapshot, const planner::Plan& now,
                                  Console& console) {
  auto edited = planner::edited(snapshot, *options.what_if);
  if (!edited.ok()) return edited.error().within("--what-if");
  WINDLASS_RETURN_IF_ERROR(attach_offers(edited->snapshot, options.by_strategy.jobs, console));
  const WhatIfPlans plans{std::move(edited->edits), now, planner::make_plan(edited->snapshot)};
  PlanAnswer answer{"", all_feasible(plans.what_if) ? kDone : kInfeasible};
  answer.text = options.output == "json"   ? what_if_json(plans).dump(2) + "\n"
                : options.output == "yaml" ? api::to_yaml(what_if_json(plans))
                                           : what_if_text(plans);
  return answer;
}

Result<PlanAnswer> plan_answer(const PlanOptions& options, Console& console) {
  WINDLASS_ASSIGN_OR_RETURN(planner::Snapshot snapshot, snapshot_of(options, console.err));
  if (options.rate_per_s >= 0) {
    for (auto& service : snapshot.services) {
      service.workload.requests_per_s = options.rate_per_s;
      service.demand.arrivals_per_s = planner::Reading{options.rate_per_s, snapshot.now_s};
    }
  }
  // A recorded snapshot holds the offers of its time.
  if (options.snapshot.empty()) WINDLASS_RETURN_IF_ERROR(attach_offers(snapshot, options.by_strategy.jobs, console));
  const planner::Plan plan = planner::make_plan(snapshot);
  if (options.what_if) return what_if_answer(options, snapshot, plan, console);
  PlanAnswer answer;
  if (!all_feasible(plan)) answer.exit_code = kInfeasible;
  answer.text = options.output == "json"   ? planner::to_json(plan, true) + "\n"
                : options.output == "yaml" ? api::to_yaml(nlohmann::json::parse(planner::to_json(plan)))
                                           : plan_table(snapshot, plan);
  return answer;
}

}  // namespace

void add_plan(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("plan", "Print the plan for files or a snapshot, without changing anything");
  auto options = std::make_shared<PlanOptions>();
  auto* source = command->add_option_group("source", "What to plan from");
  auto* files = source->add_option(
      "-f,--file,FILE", options->files,
      "YAML file (repeatable): ModelServices, or a SCENARIO without cluster, or a CLUSTER; AcceleratorClasses and profiles");
  source->add_option("--snapshot", options->snapshot, "Recorded GET /v1/snapshot of a controller; reproduces its plan")
      ->excludes(files);
  source->require_option(1);
  command->add_option("-o,--output", options->output, "Output format: table, json or yaml")
      ->check(CLI::IsMember({"table", "json", "yaml"}))
      ->capture_default_str();
  command->add_option("--rate", options->rate_per_s, "Requests per second to plan for; overrides the files")
      ->check(number_between(0, 1e9));
  auto* what_if = command
                      ->add_option("--what-if", options->what_if,
                                   "Plan again with these changes and compare, such as rate=2x,slo.ttft=300ms,price.h100=2")
                      ->option_text("KEY=VALUE,...");
  std::vector<std::string> names;
  for (const search::NamedStrategy& strategy : search::strategies()) names.emplace_back(strategy.name);
  StrategyFlags& flags = options->by_strategy;
  const auto of_files = [&](CLI::Option* option) { option->needs(files)->excludes(what_if); };
  of_files(command
               ->add_option(
                   "--strategy", flags.strategy,
                   "Plan by a published strategy, or auto for the best of all; hexgen2 and huawei need a CLUSTER or maxGPUs")
               ->check(CLI::IsMember(names)));
  of_files(command->add_option("--goal", flags.goal, "Optimise for cost, power, or throughput per GPU")
               ->check(CLI::IsMember({"cost", "power", "throughput"})));
  of_files(command->add_option("--time-limit", flags.time_limit,
                               "Time limit per strategy, such as 10s; gives the best plan found by then"));
  of_files(
      command->add_flag("--compare", flags.compare, "Plan by every strategy and compare the plans")->excludes("--strategy"));
  of_files(command->add_option("--report", flags.report,
                               "Write an HTML page with charts of cost and attainment, or of the placement on a cluster"));
  command->add_option("--jobs", flags.jobs, "Threads of a strategy; default: all cores")->check(CLI::Range(1, 1024));
  command->footer(
      "docs/plan.md describes SCENARIO and CLUSTER files. Exit code 3: an objective cannot be met, or the plan needs more "
      "workers than there are.");
  command->callback([&context, options] {
    const auto by_strategy = wants_strategy(*options);
    if (!by_strategy.ok()) {
      context.console.err << by_strategy.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    if (*by_strategy && options->what_if) {
      context.console.err << "windlass plan: --what-if: must come with ModelServices or --snapshot (got a SCENARIO or CLUSTER, "
                             "whose file says it all)\n";
      context.exit_code = kUsage;
      return;
    }
    if (*by_strategy) {
      StrategyFlags asked = options->by_strategy;
      asked.files = options->files;
      asked.output = options->output;
      asked.rate_per_s = options->rate_per_s;
      context.exit_code = plan_by_strategy(asked, context.console);
      return;
    }
    const auto answer = plan_answer(*options, context.console);
    if (!answer.ok()) {
      context.console.err << answer.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    context.console.out << answer->text;
    context.exit_code = answer->exit_code;
  });
}

}  // namespace windlass::cli
