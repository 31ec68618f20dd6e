// `windlass chain compose`: decides for an instance which servers hold which blocks, prints the resulting chains, their
// capacities and the expected response time.
#include <ostream>

#include <CLI/CLI.hpp>

#include "controller/cli/chain/chain_text.h"
#include "controller/cli/console/commands.h"
#include "planner/chain/composition_json.h"

namespace windlass::cli {
namespace {

nlohmann::ordered_json to_json(const ChosenChains& chosen) {
  auto json = chain::composition_json(chosen.instance, chosen.composition);
  json["algorithm"] = {{"placement", chosen.placement},
                       {"tuning", chosen.tuning ? nlohmann::ordered_json(chain::to_string(*chosen.tuning)) : nullptr},
                       {"servers", chosen.all_servers ? "all" : "as-needed"},
                       {"caches", chosen.caches}};
  if (chosen.caches == "ilp") json["algorithm"]["proved"] = chosen.proved;
  if (!chosen.note.empty()) json["note"] = chosen.note;
  return json;
}

}  // namespace

void add_chain_compose(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("compose", "Decide which server holds which blocks, and print the resulting chains");
  auto choice = std::make_shared<ChainChoice>();
  auto output = std::make_shared<std::string>("table");
  add_choice_options(*command, *choice);
  command->add_option("--placement", choice->placement, "Placement algorithm: gbp-cr, or one of the baselines cg-bp and petals")
      ->check(CLI::IsMember({"gbp-cr", "cg-bp", "petals"}))
      ->capture_default_str();
  command->add_option("-o,--output", *output, "Output format: table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command->footer("The exit code is 0 even if the servers cannot carry the demand: check stable and meetsMaxLoad in the JSON.");
  command->callback([&context, choice, output] {
    check_choice(*choice);
    const auto chosen = choose_chains(*choice);
    if (!chosen.ok()) {
      context.exit_code = report_chain_error(context.console.err, chosen.error());
    } else if (*output == "json") {
      context.console.out << to_json(*chosen).dump(2) << "\n";
    } else {
      context.console.out << composition_text(*chosen);
    }
  });
}

}  // namespace windlass::cli
