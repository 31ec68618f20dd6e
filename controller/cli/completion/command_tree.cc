// Reads the commands and flags of a CLI11 app; see command_tree.h.
#include "controller/cli/completion/command_tree.h"

#include <CLI/CLI.hpp>

namespace windlass::cli {
namespace {

// CLI11 writes types as "TEXT:{table,json}", "INT:INT in [1 - 1024]" or "TEXT:DURATION": the last part is the most specific.
OptionInfo option_info(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  info.positional = info.names.empty();
  if (info.positional) info.names.push_back(option.get_name(true));
  info.description = option.get_description();
  info.repeatable = option.get_items_expected_max() > 1;
  info.required = option.get_required();
  if (option.get_type_size_max() == 0) return info;
  info.default_value = option.get_default_str();
  info.value = option.get_type_name();
  const std::size_t colon = info.value.find(':');
  if (colon != std::string::npos) info.value.erase(0, colon + 1);
  if (info.value.size() > 2 && info.value.front() == '{' && info.value.back() == '}') {
    info.choices = CLI::detail::split(info.value.substr(1, info.value.size() - 2), ',');
    info.value = "VALUE";
  }
  return info;
}

// CLI11's groups are commands without a name. Their options belong to the command, except for their own --help.
void add_parts(const CLI::App& app, CommandTree& tree) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || (app.get_name().empty() && option == app.get_help_ptr())) continue;
    OptionInfo info = option_info(*option);
    if (const std::string place = option->get_name(true); option->get_positional() && !info.positional) {
      tree.options.push_back(info);
      tree.options.back().names = {place};
      tree.options.back().positional = true;
    }
    tree.options.push_back(std::move(info));
  }
  for (const CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (part->get_name().empty()) {
      add_parts(*part, tree);
    } else if (!part->get_group().empty()) {
      tree.commands.push_back(command_tree(*part));
    }
  }
}

}  // namespace

CommandTree command_tree(const CLI::App& app) {
  CommandTree tree;
  tree.name = app.get_name();
  tree.description = app.get_description();
  tree.footer = app.get_footer();
  add_parts(app, tree);
  return tree;
}

}  // namespace windlass::cli
