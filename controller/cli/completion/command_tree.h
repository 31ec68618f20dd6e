// CommandTree: the commands and flags of a program as its CLI11 app declares them, as plain data. Completion scripts and man
// pages are made from it, so that they say what --help says.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace windlass::cli {

struct OptionInfo {
  std::vector<std::string> names;  // with their dashes, the long ones first; of a positional argument its name alone
  std::string description;
  std::string value;                 // what it takes: "DURATION"; empty for a flag
  std::vector<std::string> choices;  // all that it allows; empty where that is no list
  std::string default_value;
  bool positional = false;
  bool repeatable = false;
  bool required = false;
};

struct CommandTree {
  std::string name;  // "plan"; of the program its own
  std::string description;
  std::string footer;
  std::vector<OptionInfo> options;
  std::vector<CommandTree> commands;
};

// Hidden options and commands are left out.
[[nodiscard]] CommandTree command_tree(const CLI::App& app);

// bash, zsh or fish: a script that completes the program's commands, flags and values. REQUIRES: shell is one of these.
[[nodiscard]] std::string completion_script(const CommandTree& program, const std::string& shell);

// The page of section 1 of the command `path` ends at: {program, "model", "describe"} by their trees. REQUIRES: not empty.
[[nodiscard]] std::string man_page(const std::vector<const CommandTree*>& path, const std::string& version);

}  // namespace windlass::cli
