// `windlass compare`: shows runs of `windlass load -o json` side by side.
#include <algorithm>
#include <ostream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/compare/comparison.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/duration_check.h"
#include "controller/cli/console/text_file.h"
#include "metrics/host/whole_file.h"

namespace windlass::cli {
namespace {

struct CompareFlags {
  std::vector<std::string> runs;     // NAME=FILE
  std::vector<std::string> workers;  // NAME=COUNT or NAME=FILE
  std::string ttft, tpot;
  std::string report;
};

struct Named {
  std::string name, value;
};

Named named(const std::string& text) {
  const std::size_t at = text.find('=');
  return {text.substr(0, at), text.substr(at + 1)};
}

std::vector<ComparedRun>::iterator run_named(std::vector<ComparedRun>& runs, const std::string& name) {
  return std::find_if(runs.begin(), runs.end(), [&](const ComparedRun& run) { return run.name == name; });
}

Result<std::vector<ComparedRun>> runs_of(const CompareFlags& flags) {
  std::vector<ComparedRun> runs;
  for (const std::string& each : flags.runs) {
    const Named file = named(each);
    if (run_named(runs, file.name) != runs.end()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("RUN: must have distinct names (got '{}' twice)", file.name)};
    }
    WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(file.value, "a file written by `windlass load -o json`"));
    auto run = compared_run(file.name, text);
    if (!run.ok()) return run.error().within(file.value);
    runs.push_back(std::move(run).value());
  }
  for (const std::string& each : flags.workers) {
    const auto [name, value] = named(each);
    const auto run = run_named(runs, name);
    if (run == runs.end()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("--workers: must name one of the runs (got '{}')", name)};
    }
    if (!value.empty() && value.size() < 7 && value.find_first_not_of("0123456789") == std::string::npos) {
      add_workers(*run, std::stod(value));
      continue;
    }
    WINDLASS_ASSIGN_OR_RETURN(const std::string text,
                              read_text_file(value, "a count or a file written by `windlass top --record`"));
    if (const auto added = add_workers(*run, text); !added.ok())
      return added.error().within("--workers: " + value + ": must be a file written by `windlass top --record`");
  }
  return runs;
}

Result<std::string> compare(const CompareFlags& flags) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<ComparedRun> runs, runs_of(flags));
  Objectives objectives;
  if (!flags.ttft.empty()) objectives.ttft_s = duration_s(flags.ttft);
  if (!flags.tpot.empty()) objectives.tpot_s = duration_s(flags.tpot);
  if (!flags.report.empty()) WINDLASS_RETURN_IF_ERROR(write_whole_file(flags.report, comparison_page(runs, objectives)));
  return comparison_text(runs, objectives);
}

}  // namespace

void add_compare(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("compare", "Show runs of `windlass load -o json` side by side");
  auto flags = std::make_shared<CompareFlags>();
  const auto assignment = [](const char* what) {
    return CLI::Validator(
        [what](std::string& text) {
          const std::size_t at = text.find('=');
          const bool right = at != 0 && at != std::string::npos && at + 1 < text.size();
          return right ? std::string() : fmt::format("must be {} (got '{}')", what, text);
        },
        what);
  };
  const CLI::Validator above_zero(
      [](std::string& text) {
        return duration_s(text) > 0 ? std::string() : fmt::format("must be a duration above 0 such as 500ms (got '{}')", text);
      },
      "DURATION");
  command->add_option("RUN", flags->runs, "A name and its file, such as before=before.json after=after.json")
      ->required()
      ->check(assignment("NAME=FILE"));
  command
      ->add_option(
          "--workers", flags->workers,
          "Workers of a run: NAME=COUNT, or NAME=FILE with FILE recorded by `windlass top --record` from the run's start")
      ->check(assignment("NAME=COUNT|FILE"));
  command->add_option("--ttft", flags->ttft, "Objective for the time to first token, drawn in the charts: 500ms")
      ->check(above_zero);
  command->add_option("--tpot", flags->tpot, "Objective for the time per output token")->check(above_zero);
  command->add_option("--report", flags->report, "Also write an HTML page with charts to this file");
  command->callback([&context, flags] {
    const auto text = compare(*flags);
    if (text.ok()) {
      context.console.out << *text;
    } else {
      context.console.err << "windlass compare: " << text.error().message << "\n";
      context.exit_code = kFailed;
    }
  });
}

}  // namespace windlass::cli
