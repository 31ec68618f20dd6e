// The commands of `windlass`: each adds itself to the CLI11 app, in a folder of its own (plan/command_plan.cc).
//
// add_X() declares options and sets a callback that runs the command and stores its exit code in `exit_code`. What a callback
// captures lives in the app. Single-threaded.
#pragma once

#include <string>
#include <vector>

#include "controller/cli/console/console.h"

namespace CLI {
class App;
}

namespace windlass::cli {

inline constexpr const char* kVersion = "windlass 0.1.0";

struct CommandContext {
  Console& console;
  int exit_code = kDone;
};

void add_up(CLI::App& app, CommandContext& context);
void add_attach(CLI::App& app, CommandContext& context);
void add_plan(CLI::App& app, CommandContext& context);
void add_validate(CLI::App& app, CommandContext& context);
void add_model(CLI::App& app, CommandContext& context);
void add_top(CLI::App& app, CommandContext& context);
void add_wait(CLI::App& app, CommandContext& context);
void add_explain(CLI::App& app, CommandContext& context);
void add_load(CLI::App& app, CommandContext& context);
void add_chain(CLI::App& app, CommandContext& context);  // with the three below
void add_chain_compose(CLI::App& app, CommandContext& context);
void add_chain_simulate(CLI::App& app, CommandContext& context);
void add_chain_recompose(CLI::App& app, CommandContext& context);
void add_check(CLI::App& app, CommandContext& context);
void add_compare(CLI::App& app, CommandContext& context);
void add_fit(CLI::App& app, CommandContext& context);
void add_profile(CLI::App& app, CommandContext& context);
void add_simulate(CLI::App& app, CommandContext& context);
void add_completion(CLI::App& app, CommandContext& context);
void add_man(CLI::App& app, CommandContext& context);
void add_version(CLI::App& app, CommandContext& context);

// The whole program: parses `arguments` (without the program's name) and runs the command. The exit code. `program` is what
// help calls it: "windlass", or "kubectl windlass" where kubectl runs it as its plugin.
[[nodiscard]] int run_cli(const std::vector<std::string>& arguments, Console& console, const std::string& program = "windlass");

}  // namespace windlass::cli
