// `windlass chain`: groups the commands for server chains, which serve a model that is too large for one server.
#include <CLI/CLI.hpp>

#include "controller/cli/console/commands.h"

namespace windlass::cli {

void add_chain(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("chain", "Compose and simulate chains of servers that share one large model");
  command->require_subcommand(1);
  command->footer(
      "INSTANCE is a YAML file with the model's blocks (layers), the demand and the servers; see examples/chains.\n"
      "Exit code 2: the input is wrong, or no chain of servers can hold the whole model.");
  add_chain_compose(*command, context);
  add_chain_simulate(*command, context);
  add_chain_recompose(*command, context);
}

}  // namespace windlass::cli
