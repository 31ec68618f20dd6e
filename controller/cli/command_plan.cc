// `windlass plan`: what would be decided, from YAML files or from a snapshot of a live controller. Touches nothing.
#include <ostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "controller/api/yaml.h"
#include "controller/cli/commands.h"
#include "controller/cli/object_files.h"
#include "controller/cli/plan_text.h"
#include "controller/cli/text_file.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"

namespace windlass::cli {
namespace {

struct PlanOptions {
  std::vector<std::string> files;
  std::string snapshot;
  std::string output = "table";
  double rate_per_s = -1;
};

Result<planner::Snapshot> snapshot_of(const PlanOptions& options) {
  if (!options.snapshot.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string text,
                              read_text_file(options.snapshot, "a file with a controller's /v1/snapshot"));
    auto snapshot = planner::snapshot_from_json(text);
    if (!snapshot.ok()) return snapshot.error().within(options.snapshot);
    return snapshot;
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto objects, read_object_files(options.files));
  WINDLASS_RETURN_IF_ERROR(check_references(objects));
  return quiet_snapshot(objects);
}

Result<std::string> plan_text(const PlanOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(planner::Snapshot snapshot, snapshot_of(options));
  if (options.rate_per_s >= 0) {
    for (auto& service : snapshot.services) {
      service.workload.requests_per_s = options.rate_per_s;
      service.demand.arrivals_per_s = planner::Reading{options.rate_per_s, snapshot.now_s};
    }
  }
  const planner::Plan plan = planner::make_plan(snapshot);
  if (options.output == "json") return planner::to_json(plan, true) + "\n";
  if (options.output == "yaml") return api::to_yaml(nlohmann::json::parse(planner::to_json(plan)));
  return plan_table(snapshot, plan);
}

}  // namespace

void add_plan(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("plan", "Print what would be decided, touching nothing");
  auto options = std::make_shared<PlanOptions>();
  auto* source = command->add_option_group("source", "What to plan from");
  auto* files =
      source->add_option("-f,--file,FILE", options->files, "YAML file with ModelServices and AcceleratorClasses; repeatable");
  source->add_option("--snapshot", options->snapshot, "What a controller saw (GET /v1/snapshot): gives the same plan again")
      ->excludes(files);
  source->require_option(1);
  command->add_option("-o,--output", options->output, "table, json or yaml")
      ->check(CLI::IsMember({"table", "json", "yaml"}))
      ->capture_default_str();
  command->add_option("--rate", options->rate_per_s, "Requests per second to plan for, in place of what the files assume")
      ->check(CLI::Range(0.0, 1e9));
  command->callback([&context, options] {
    const auto text = plan_text(*options);
    if (!text.ok()) {
      context.console.err << text.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    context.console.out << *text;
  });
}

}  // namespace windlass::cli
