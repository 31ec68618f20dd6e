// The commands of `windlass`. Each adds itself to the CLI11 app and has its own folder (plan/command_plan.cc).
//
// add_X() declares the options and sets a callback that runs the command and stores its exit code in `exit_code`. The app owns
// whatever the callback captures. Single-threaded.
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
void add_chain(CLI::App& app, CommandContext& context);  // also adds the three below
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

// The whole program: parses `arguments` (without the program's name), runs the command and returns the exit code. `program` is
// the name in help texts: "windlass", or "kubectl windlass" when kubectl runs it as a plugin.
[[nodiscard]] int run_cli(const std::vector<std::string>& arguments, Console& console, const std::string& program = "windlass");

}  // namespace windlass::cli
