// Completion scripts for bash, zsh and fish; see command_tree.h.
#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/completion/command_tree.h"

namespace windlass::cli {
namespace {

// Calls `visit` for every command with its full name: "windlass", "windlass model", "windlass model init".
using Visit = std::function<void(const CommandTree& command, const std::string& words)>;
void each(const CommandTree& command, const std::string& words, const Visit& visit) {
  visit(command, words);
  for (const CommandTree& child : command.commands) each(child, words + " " + child.name, visit);
}

// Quotes text with single quotes, which bash, zsh and fish all accept.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> flags_of(const CommandTree& command) {
  std::vector<std::string> flags;
  for (const OptionInfo& option : command.options) {
    if (!option.positional) flags.insert(flags.end(), option.names.begin(), option.names.end());
  }
  return flags;
}

std::vector<std::string> commands_of(const CommandTree& command) {
  std::vector<std::string> names;
  for (const CommandTree& child : command.commands) names.push_back(child.name);
  return names;
}

// Whether the value may be a file name. Numbers and durations are not; TEXT can be anything.
bool may_be_file(const OptionInfo& option) {
  for (const char* kind : {"TEXT", "FILE", "DIR", "PATH"}) {
    if (option.value.starts_with(kind)) return true;
  }
  return false;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The values of a positional argument that has few of them; empty if the word may be a file.
std::vector<std::string> words_of(const CommandTree& command) {
  std::vector<std::string> words = commands_of(command);
  for (const OptionInfo& option : command.options) {
    if (option.positional) words.insert(words.end(), option.choices.begin(), option.choices.end());
  }
  return words;
}

std::string bash_script(const CommandTree& program) {
  std::string paths, values, words;
  each(program, program.name, [&](const CommandTree& command, const std::string& name) {
    if (!command.commands.empty()) {
      for (const CommandTree& child : command.commands) paths += (paths.empty() ? "" : "|") + quoted(name + " " + child.name);
    }
    for (const OptionInfo& option : command.options) {
      if (option.positional || option.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& flag : option.names) patterns.push_back(quoted(name + " " + flag));
      values += fmt::format("    {}) ", fmt::join(patterns, "|"));
      values += !option.choices.empty()
                    ? fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n", fmt::join(option.choices, " "))
                : may_be_file(option) ? "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
                                      : "return ;;\n";
    }
    words += fmt::format("    {}) flags='{}' words='{}' ;;\n", quoted(name), fmt::join(flags_of(command), " "),
                         fmt::join(words_of(command), " "));
  });
  return fmt::format(R"(# bash completion of {0}; made by `{0} completion bash`.
_{0}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} command={0} flags words i
  if [ "$cur" = "=" ]; then  # bash takes --flag=value apart
    cur=
  elif [ "$prev" = "=" ]; then
    prev=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${{COMP_WORDS[i]}}" in
    {1}) command="$command ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command $prev" in
{2}  esac
  case "$command" in
{3}  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _{0} {0}
)",
                     program.name, paths, values, words);
}

// Escapes colons and brackets, which have a meaning in specifications of _arguments.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : first_line(text)) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionInfo& option) {
  if (!option.choices.empty()) return fmt::format("({})", fmt::join(option.choices, " "));
  return may_be_file(option) ? "_files" : " ";
}

std::string zsh_script(const CommandTree& program) {
  std::string text = fmt::format("#compdef {0}\n# zsh completion of {0}; made by `{0} completion zsh`.\n", program.name);
  each(program, program.name, [&](const CommandTree& command, const std::string& name) {
    std::string function = "_" + name;
    std::replace(function.begin(), function.end(), ' ', '_');
    text += fmt::format("{}() {{\n  local state\n  _arguments -C", function);
    for (const OptionInfo& option : command.options) {
      if (option.positional) continue;
      for (const std::string& flag : option.names) {
        const bool takes = !option.value.empty();
        const std::string excluded = option.repeatable ? "*" : fmt::format("({})", fmt::join(option.names, " "));
        text += " \\\n    " + quoted(fmt::format("{}{}{}[{}]{}", excluded, flag, takes && flag.size() > 2 ? "=" : "",
                                                 zsh_text(option.description),
                                                 takes ? ":" + zsh_text(option.value) + ":" + zsh_action(option) : ""));
      }
    }
    if (!command.commands.empty()) {
      text += " \\\n    '1:command:->command' '*::argument:->argument'\n  case $state in\n  command)\n    local -a commands=(";
      for (const CommandTree& child : command.commands)
        text += "\n      " + quoted(child.name + ":" + first_line(child.description));
      text += fmt::format("\n    )\n    _describe command commands ;;\n  argument)\n    case $words[1] in\n");
      for (const CommandTree& child : command.commands) text += fmt::format("    {0}) {1}_{0} ;;\n", child.name, function);
      text += "    esac ;;\n  esac\n}\n";
    } else {
      const auto positional = std::find_if(command.options.begin(), command.options.end(),
                                           [](const OptionInfo& option) { return option.positional; });
      const std::string action = positional == command.options.end() ? "_files" : zsh_action(*positional);
      text += " \\\n    " + quoted("*:argument:" + action) + "\n}\n";
    }
  });
  return text + fmt::format("if [ \"$funcstack[1]\" = _{0} ]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n", program.name);
}

std::string fish_script(const CommandTree& program) {
  std::vector<std::string> paths;
  std::string text;
  each(program, program.name, [&](const CommandTree& command, const std::string& name) {
    const std::string start = fmt::format("complete -c {} -n \"__{}_at '{}'\"", program.name, program.name, name);
    for (const CommandTree& child : command.commands) {
      paths.push_back(quoted(name + " " + child.name));
      text += fmt::format("{} -f -a {} -d {}\n", start, child.name, quoted(first_line(child.description)));
    }
    for (const OptionInfo& option : command.options) {
      if (option.positional) {
        if (!option.choices.empty())
          text += fmt::format("{} -f -a {} -d {}\n", start, quoted(fmt::format("{}", fmt::join(option.choices, " "))),
                              quoted(first_line(option.description)));
        continue;
      }
      text += start;
      for (const std::string& flag : option.names)
        text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      if (!option.value.empty()) text += may_be_file(option) ? " -r" : " -x";
      if (!option.choices.empty()) text += " -f -a " + quoted(fmt::format("{}", fmt::join(option.choices, " ")));
      text += " -d " + quoted(first_line(option.description)) + "\n";
    }
  });
  return fmt::format(R"(# fish completion of {0}; made by `{0} completion fish`.
function __{0}_at
  set -l command {0}
  for word in (commandline -opc)[2..-1]
    if contains -- "$command $word" {1}
      set command "$command $word"
    end
  end
  test "$command" = "$argv[1]"
end
{2})",
                     program.name, fmt::join(paths, " "), text);
}

}  // namespace

std::string completion_script(const CommandTree& program, const std::string& shell) {
  return shell == "zsh" ? zsh_script(program) : shell == "fish" ? fish_script(program) : bash_script(program);
}

}  // namespace windlass::cli
