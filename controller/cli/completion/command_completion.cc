// `windlass completion` prints a shell's completion script and `windlass man` the manual. Both come from the declared flags.
#include <filesystem>
#include <fstream>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/completion/command_tree.h"
#include "controller/cli/console/commands.h"

namespace windlass::cli {
namespace {

constexpr const char* kProgram = "windlass";  // also when run by kubectl, which asks plugins for completions itself

CommandTree tree_of(const CLI::App& app) {
  CommandTree tree = command_tree(app);
  tree.name = kProgram;
  return tree;
}

std::string page_name(const std::vector<const CommandTree*>& path) {
  std::string name;
  for (const CommandTree* one : path) name += (name.empty() ? "" : "-") + one->name;
  return name + ".1";
}

// Writes every page below `path` into `folder`. The error names the first one that failed.
Result<int> write_pages(std::vector<const CommandTree*>& path, const std::filesystem::path& folder) {
  const auto file = folder / page_name(path);
  std::ofstream out(file, std::ios::trunc);
  out << man_page(path, kVersion);
  out.close();
  if (!out)
    return Error{ErrorCode::kUnavailable, fmt::format("--dir: must be a writable folder (cannot write {})", file.string())};
  int pages = 1;
  for (const CommandTree& child : path.back()->commands) {
    path.push_back(&child);
    WINDLASS_ASSIGN_OR_RETURN(const int below, write_pages(path, folder));
    pages += below;
    path.pop_back();
  }
  return pages;
}

Result<std::string> manual(const CommandTree& program, const std::vector<std::string>& words, const std::string& folder) {
  std::vector<const CommandTree*> path{&program};
  for (const std::string& word : words) {
    const CommandTree* next = nullptr;
    std::string known;
    for (const CommandTree& child : path.back()->commands) {
      if (child.name == word) next = &child;
      known += (known.empty() ? "" : ", ") + child.name;
    }
    if (next == nullptr)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("COMMAND: must be {} (got '{}')", known.empty() ? "left out here" : "one of " + known, word)};
    path.push_back(next);
  }
  if (folder.empty()) return man_page(path, kVersion);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{ErrorCode::kUnavailable, fmt::format("--dir: {}: {}", folder, error.message())};
  WINDLASS_ASSIGN_OR_RETURN(const int pages, write_pages(path, folder));
  return fmt::format("wrote {} pages to {}\n", pages, folder);
}

}  // namespace

void add_completion(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("completion", "Print a shell script that completes commands, flags and values");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "The shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "bash: windlass completion bash >~/.local/share/bash-completion/completions/windlass\n"
      "zsh:  windlass completion zsh >DIR/_windlass, with DIR in $fpath before compinit\n"
      "fish: windlass completion fish >~/.config/fish/completions/windlass.fish");
  command->callback([&app, &context, shell] { context.console.out << completion_script(tree_of(app), *shell); });
}

void add_man(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("man", "Print a manual page, or write all of them to a folder");
  auto words = std::make_shared<std::vector<std::string>>();
  auto folder = std::make_shared<std::string>();
  command->add_option("COMMAND", *words, "The command; default: the whole program");
  command->add_option("--dir", *folder, "Write the page and those of all its subcommands to this folder");
  command->footer("Read one page: windlass man plan | man -l -\nInstall all: windlass man --dir ~/.local/share/man/man1");
  command->callback([&app, &context, words, folder] {
    const auto text = manual(tree_of(app), *words, *folder);
    if (!text.ok()) {
      context.console.err << "windlass man: " << text.error().message << "\n";
      context.exit_code = text.error().code == ErrorCode::kInvalidArgument ? kUsage : kFailed;
      return;
    }
    context.console.out << *text;
  });
}

}  // namespace windlass::cli
