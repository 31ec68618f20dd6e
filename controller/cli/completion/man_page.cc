// Writes pages for man(1) in roff; see command_tree.h.
#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/completion/command_tree.h"

namespace windlass::cli {
namespace {

// Escapes text for roff: no line starts a request, and dashes stay ASCII dashes that can be copied.
std::string roff(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

std::string sentence(const std::string& text) { return text.empty() || text.ends_with('.') ? text : text + "."; }

std::string option_text(const OptionInfo& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(option.positional ? italic(name) : bold(name));
  std::string text = fmt::format(".TP\n{}", fmt::join(names, ", "));
  if (!option.value.empty() && !option.positional) text += " " + italic(option.value);
  text += "\n" + roff(sentence(option.description)) + "\n";
  if (!option.choices.empty()) text += roff(fmt::format("One of: {}.", fmt::join(option.choices, ", "))) + "\n";
  if (!option.default_value.empty()) text += roff(fmt::format("Default: {}.", option.default_value)) + "\n";
  if (option.required && !option.positional) text += "Required.\n";
  return text;
}

std::string joined(const std::vector<const CommandTree*>& path, const char* between) {
  std::string text;
  for (const CommandTree* one : path) text += (text.empty() ? "" : between) + one->name;
  return text;
}

}  // namespace

std::string man_page(const std::vector<const CommandTree*>& path, const std::string& version) {
  const CommandTree& command = *path.back();
  const std::string name = joined(path, "-");
  std::string title = name;
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text =
      fmt::format(".TH {} 1 \"\" {} \"Windlass Manual\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}", "\"" + roff(title) + "\"",
                  "\"" + roff(version) + "\"", roff(name), roff(command.description), bold(joined(path, " ")));
  if (!command.options.empty()) text += " [" + italic("OPTION") + "]...";
  if (!command.commands.empty()) text += " " + italic("COMMAND");
  for (const OptionInfo& option : command.options) {
    if (!option.positional) continue;
    const std::string shown = italic(option.names.front()) + (option.repeatable ? "..." : "");
    text += option.required ? " " + shown : " [" + shown + "]";
  }
  text += "\n";
  const auto section = [&](const char* heading, bool positional) {
    std::string body;
    for (const OptionInfo& option : command.options) {
      if (option.positional == positional) body += option_text(option);
    }
    if (!body.empty()) text += fmt::format(".SH {}\n{}", heading, body);
  };
  section("ARGUMENTS", true);
  section("OPTIONS", false);
  if (!command.commands.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandTree& child : command.commands)
      text += fmt::format(".TP\n{}\n{}\n", bold(child.name), roff(sentence(child.description)));
  }
  if (!command.footer.empty()) text += ".SH NOTES\n" + roff(command.footer) + "\n";
  std::vector<std::string> others;
  if (path.size() > 1) others.push_back(bold(joined({path.begin(), path.end() - 1}, "-")) + "(1)");
  for (const CommandTree& child : command.commands) others.push_back(bold(name + "-" + child.name) + "(1)");
  if (!others.empty()) text += fmt::format(".SH SEE ALSO\n{}\n", fmt::join(others, ",\n"));
  return text;
}

}  // namespace windlass::cli
