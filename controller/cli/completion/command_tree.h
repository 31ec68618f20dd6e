// CommandTree: a program's commands and flags as plain data, read from its CLI11 app. Completion scripts and man pages are made
// from it, so they always agree with --help.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace windlass::cli {

struct OptionInfo {
  std::vector<std::string> names;  // with dashes, long names first; the bare name of a positional argument
  std::string description;
  std::string value;                 // the kind of value: "DURATION"; empty for a flag
  std::vector<std::string> choices;  // the allowed values; empty unless they are a list
  std::string default_value;
  bool positional = false;
  bool repeatable = false;
  bool required = false;
};

struct CommandTree {
  std::string name;  // "plan"; the program's name at the root
  std::string description;
  std::string footer;
  std::vector<OptionInfo> options;
  std::vector<CommandTree> commands;
};

// Leaves out hidden options and commands.
[[nodiscard]] CommandTree command_tree(const CLI::App& app);

// A script that completes the program's commands, flags and values. REQUIRES: shell is bash, zsh or fish.
[[nodiscard]] std::string completion_script(const CommandTree& program, const std::string& shell);

// The manual page (section 1) of the last command in `path`, such as {program, "model", "describe"}. REQUIRES: not empty.
[[nodiscard]] std::string man_page(const std::vector<const CommandTree*>& path, const std::string& version);

}  // namespace windlass::cli
