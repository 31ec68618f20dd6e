// Tests completion scripts and man pages: that they match the flags, and that shells and man accept them.
#include "controller/cli/completion/command_tree.h"

#include <cstdlib>
#include <fstream>
#include <functional>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/cli/example_objects.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A program with a flag, a choice, a hidden option and a group, one of whose options is also positional.
CommandTree example() {
  CLI::App app{"Does it.", "thing"};
  auto* make = app.add_subcommand("make", "Make a 'thing'");
  static std::string text;
  static std::vector<std::string> files;
  static bool flag = false;
  make->add_option("-o,--output", text, "How")->check(CLI::IsMember({"table", "json"}))->required();
  make->add_option("--secret", text, "Nobody's business")->group("");
  make->add_flag("--fast", flag, "Faster: [very]");
  make->add_option_group("source", "")->add_option("FILE,-f,--file", files, "What from");
  app.add_subcommand("hidden", "")->group("");
  return command_tree(app);
}

// Given an app; expects its commands and options with all their attributes, and nothing hidden.
TEST(CommandTree, ListsTheAppsCommandsAndOptions) {
  const CommandTree tree = example();
  ASSERT_EQ(tree.commands.size(), 1U);
  const CommandTree& make = tree.commands[0];
  std::vector<std::vector<std::string>> names;
  for (const OptionInfo& option : make.options) names.push_back(option.names);
  EXPECT_THAT(names, ElementsAre(ElementsAre("--help", "-h"), ElementsAre("--output", "-o"), ElementsAre("--fast"),
                                 ElementsAre("FILE"), ElementsAre("--file", "-f")));
  EXPECT_THAT(make.options[1].choices, ElementsAre("table", "json"));
  EXPECT_TRUE(make.options[1].required);
  EXPECT_EQ(make.options[2].value, "");
  EXPECT_TRUE(make.options[3].positional);
  EXPECT_TRUE(make.options[4].repeatable);
}

// Given that tree; expects a page with all of it, in which no text is a request of roff.
TEST(ManPage, SaysWhatTheFlagsSay) {
  const CommandTree tree = example();
  const std::string page = man_page({&tree, &tree.commands[0]}, "thing 1.0");
  EXPECT_THAT(page, HasSubstr(".TH \"THING\\-MAKE\" 1 \"\" \"thing 1.0\""));
  EXPECT_THAT(page, HasSubstr("\\fBthing make\\fR [\\fIOPTION\\fR]... [\\fIFILE\\fR...]"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-output\\fR, \\fB\\-o\\fR \\fIVALUE\\fR\nHow.\nOne of: table, json.\nRequired.\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
  EXPECT_THAT(man_page({&tree}, "thing 1.0"), HasSubstr(".SH SEE ALSO\n\\fBthing\\-make\\fR(1)\n"));
}

// What a shell prints for a script; empty if the shell is not installed.
std::optional<std::string> printed_by(const std::string& shell, const std::string& script) {
  if (std::system(("command -v " + shell + " >/dev/null 2>&1").c_str()) != 0) return std::nullopt;
  const TempFolder folder;
  const std::string file = folder.file("script", script), out = (folder.path() / "out").string();
  EXPECT_EQ(std::system((shell + " '" + file + "' >'" + out + "' 2>&1").c_str()), 0);
  std::ifstream in(out);
  return std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Given bash and an incomplete line; expects the words that may follow: commands, flags and values, also after "=", and no
// files for a number.
TEST(Completion, CompletesInBash) {
  const auto printed = printed_by("bash", run({"completion", "bash"}).out + R"(
words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _windlass; echo "${COMPREPLY[*]}"; }
words windlass ch
words windlass chain ''
words windlass plan --out
words windlass plan --output = j
words windlass chain simulate --policy ji
words windlass completion ''
words windlass plan --rate ''
)");
  if (!printed) GTEST_SKIP() << "no bash";
  EXPECT_EQ(*printed, "check chain\ncompose simulate recompose\n--output\njson\njiq\nbash zsh fish\n\n");
}

// Given fish and the same lines; expects the same words.
TEST(Completion, CompletesInFish) {
  const auto printed = printed_by("fish", run({"completion", "fish"}).out + R"(
complete -C "windlass pl"
complete -C "windlass chain re"
complete -C "windlass plan --output j"
)");
  if (!printed) GTEST_SKIP() << "no fish";
  EXPECT_THAT(*printed, HasSubstr("plan\tPrint the plan for files or a snapshot"));
  EXPECT_THAT(*printed, HasSubstr("recompose\t"));
  EXPECT_THAT(*printed, HasSubstr("json\t"));
}

// Given zsh; expects that it can read the script.
TEST(Completion, LoadsInZsh) {
  const auto printed = printed_by("zsh -n", run({"completion", "zsh"}).out);
  if (!printed) GTEST_SKIP() << "no zsh";
  EXPECT_EQ(*printed, "");
}

// Given every command of windlass; expects it in each script, and groff to accept its page.
TEST(Completion, HasEveryCommand) {
  const Outcome help = run({"--help"});
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome script = run({"completion", shell});
    EXPECT_EQ(script.code, kDone);
    for (const char* word : {"up", "attach", "plan", "recompose", "describe", "time-limit", "man", "jffc"})
      EXPECT_THAT(script.out, HasSubstr(word)) << shell;
  }
  EXPECT_EQ(run({"completion", "tcsh"}).code, kUsage);
}

// Given a folder; expects pages for the program and each command in it. Given a wrong command or folder; expects an error with
// the allowed ones.
TEST(Man, WritesAllPages) {
  const TempFolder folder;
  const std::string pages = (folder.path() / "man1").string();
  EXPECT_EQ(run({"man", "--dir", pages}).code, kDone);
  EXPECT_TRUE(std::filesystem::exists(pages + "/windlass.1"));
  EXPECT_TRUE(std::filesystem::exists(pages + "/windlass-chain-compose.1"));
  if (std::system("command -v groff >/dev/null 2>&1") == 0) {
    EXPECT_EQ(std::system(("test -z \"$(groff -man -ww -z -Tutf8 '" + pages + "'/*.1 2>&1)\"").c_str()), 0);
  }
  EXPECT_THAT(run({"man", "plan"}).out, HasSubstr("\\-\\-time\\-limit"));
  const Outcome wrong = run({"man", "chain", "nope"});
  EXPECT_EQ(wrong.code, kUsage);
  EXPECT_EQ(wrong.err, "windlass man: COMMAND: must be one of compose, simulate, recompose (got 'nope')\n");
  EXPECT_EQ(run({"man", "--dir", folder.file("file", "") + "/below"}).code, kFailed);
}

}  // namespace
}  // namespace windlass::cli
