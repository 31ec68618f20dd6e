// `windlass up`: runs a whole Windlass on this machine from YAML files, with a live table, until Ctrl-C.
#include <memory>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/console/commands.h"
#include "controller/cli/console/object_files.h"
#include "controller/cli/console/plan_text.h"
#include "controller/cli/local/stack_run.h"
#include "controller/cli/local/this_machine.h"
#include "planner/policy/make_plan.h"

namespace windlass::cli {
namespace {

// One line per service whose objectives no plan can meet.
std::string infeasible(const std::vector<api::Object>& objects) {
  const planner::Snapshot snapshot = quiet_snapshot(objects);
  const planner::Plan plan = planner::make_plan(snapshot);
  std::string lines;
  for (std::size_t i = 0; i < plan.services.size(); ++i) {
    const planner::ServicePlan& service = plan.services[i];
    if (service.feasible.status != planner::Truth::kFalse) continue;
    if (snapshot.services[i].scaling.mode != planner::Mode::kApply) continue;
    lines += fmt::format("ModelService {}/{}: {}\n", service.id.name_space, service.id.name,
                         hint_text("Feasible", service.feasible));
  }
  return lines;
}

int up(LocalStackOptions options, Console& console) {
  const auto refuse = [&](const Error& error) {
    console.err << error.message << (error.message.ends_with('\n') ? "" : "\n");
    return kFailed;
  };
  auto objects = read_object_files(options.files);
  if (!objects.ok()) return refuse(objects.error());
  auto machine = add_this_machine(*objects, console.err);
  if (!machine.ok()) return refuse(machine.error());
  if (!machine->empty()) options.made[fmt::format("{}.yaml", kThisMachine)] = std::move(machine).value();
  if (const auto checked = check_references(*objects, Classes::kOfFiles); !checked.ok()) return refuse(checked.error());
  if (const auto checked = check_models(*objects); !checked.ok()) return refuse(checked.error());
  if (const std::string lines = infeasible(*objects); !lines.empty()) {
    console.err << lines;
    return kInfeasible;
  }
  return run_stack(options, *objects, console);
}

}  // namespace

void add_up(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("up", "Run everything on this machine: controller, gateway and workers, until Ctrl-C");
  auto options = std::make_shared<LocalStackOptions>();
  command->add_option("-f,--file,FILE", options->files, "YAML file with ModelServices and AcceleratorClasses; repeatable")
      ->required();
  command->add_option("--dir", options->directory, "Folder for objects, status and logs")->capture_default_str();
  command->add_option("--listen", options->listen, "Where the gateway takes requests")->capture_default_str();
  command
      ->add_option("--gpus", options->gpus, "GPUs of each AcceleratorClass on this machine; default: the class's gpusPerNode")
      ->check(CLI::Range(1, 1024));
  command->footer("Exit code 3: an objective cannot be met.");
  command->callback([&context, options] { context.exit_code = up(*options, context.console); });
}

}  // namespace windlass::cli
