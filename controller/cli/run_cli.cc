// Registers every command, runs the one on the command line, and reports CLI11's parse errors as one line with exit code 2.
#include <algorithm>
#include <ostream>

#include <CLI/CLI.hpp>

#include "controller/cli/console/commands.h"

namespace windlass::cli {
namespace {

// The innermost subcommand given on the command line, such as "windlass model describe".
const CLI::App& deepest(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() ? full_name(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

// The error for an unknown command name; empty if there is none. CLI11 itself would only say that a command is required.
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  for (const std::string& word : arguments) {
    std::string known;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : at->get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); })) {
      if (command->get_name() == word) next = command;
      known += (known.empty() ? "" : ", ") + command->get_name();
    }
    if (known.empty() || word.empty() || word[0] == '-') return "";
    if (next == nullptr) {
      return full_name(*at) + ": command must be one of " + known + " (got '" + word + "'); see `" + full_name(*at) +
             " --help`\n";
    }
    at = next;
  }
  return "";
}

}  // namespace

void add_version(CLI::App& app, CommandContext& context) {
  app.add_subcommand("version", "Print the version")->callback([&context] { context.console.out << kVersion << "\n"; });
}

int run_cli(const std::vector<std::string>& arguments, Console& console, const std::string& program) {
  CLI::App app{"Windlass keeps LLM services within their latency objectives at the lowest cost.", program};
  CommandContext context{console};
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  app.footer("Run a command with --help for its options. To start: scripts/demo, or `windlass up -f examples/tiny.yaml`.");
  add_up(app, context);
  add_attach(app, context);
  add_plan(app, context);
  add_validate(app, context);
  add_model(app, context);
  add_top(app, context);
  add_wait(app, context);
  add_explain(app, context);
  add_check(app, context);
  add_compare(app, context);
  add_load(app, context);
  add_chain(app, context);
  add_simulate(app, context);
  add_fit(app, context);
  add_profile(app, context);
  add_completion(app, context);
  add_man(app, context);
  add_version(app, context);

  if (arguments.empty()) {
    console.err << app.help();
    return kUsage;
  }
  if (const std::string unknown = unknown_command(app, arguments); !unknown.empty()) {
    console.err << unknown;
    return kUsage;
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    const CLI::App& command = deepest(app);
    console.out << command.help(command.get_parent() ? full_name(*command.get_parent()) : "");
    return kDone;
  } catch (const CLI::CallForVersion&) {
    console.out << kVersion << "\n";
    return kDone;
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = deepest(app);
    std::string what = error.what();
    while (!what.empty() && what.back() == '\n') what.pop_back();
    std::replace(what.begin(), what.end(), '\n', ' ');
    console.err << full_name(command) << ": " << what << "; see `" << full_name(command) << " --help`\n";
    return kUsage;
  }
  console.out.flush();
  return context.exit_code;
}

}  // namespace windlass::cli
