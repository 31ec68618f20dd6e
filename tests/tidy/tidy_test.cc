// The repository's rules: each rule on a good and a bad text, then all rules on the whole tree.
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/tidy/english.h"
#include "tests/tidy/rules.h"

namespace windlass::tidy {
namespace {

// Given includes against and along the allowed direction, expects only the former to be found, and none in comments.
TEST(TidyRules, IncludeDirectionsAreSeen) {
  const SourceFile bad{"planner/base/x.h", "// #include \"gateway/a.h\"\n#include \"planner/perf/y.h\"\n"};
  ASSERT_EQ(include_directions(bad).size(), 1u);
  EXPECT_NE(include_directions(bad)[0].find("planner/base/x.h:2: includes \"planner/perf/y.h\""), std::string::npos);
  EXPECT_EQ(include_directions({"worker/x.cc", "#include \"controller/api/y.h\"\n"}).size(), 1u);
  EXPECT_EQ(include_directions({"worker/x.cc", "#include \"planner/catalog/y.h\"\n"}).size(), 1u);
  EXPECT_EQ(include_directions({"gateway/x.cc", "#include \"planner/sim/y.h\"\n"}).size(), 1u);
  EXPECT_EQ(include_directions({"controller/app/x.cc", "#include \"tests/fakes/y.h\"\n"}).size(), 1u);
  EXPECT_TRUE(include_directions({"gateway/x.cc", "#include \"planner/dispatch/y.h\"\n#include <vector>\n"}).empty());
  EXPECT_TRUE(include_directions({"tests/unit/x.cc", "#include \"worker/y.h\"\n"}).empty());
  const std::string core = "#include \"planner/strategies/core/y.h\"\n", other = "#include \"planner/strategies/vidur/y.h\"\n";
  const std::string registry = "#include \"planner/strategies/strategies.h\"\n", policy = "#include \"planner/policy/y.h\"\n";
  EXPECT_TRUE(include_directions({"planner/strategies/mix/x.cc", core}).empty());
  EXPECT_EQ(include_directions({"planner/strategies/mix/x.cc", other + registry + policy}).size(), 3u);
  EXPECT_TRUE(include_directions({"planner/strategies/strategies.cc", core + other}).empty());
  EXPECT_EQ(include_directions({"planner/policy/x.cc", core + registry + policy}).size(), 2u);
  EXPECT_TRUE(include_directions({"planner/whatif/x.cc", core + registry + policy}).empty());
  EXPECT_EQ(include_directions({"worker/model/x.cc", "#include \"worker/engine/y.h\"\n"}).size(), 1u);
  EXPECT_EQ(include_directions({"planner/policy/x.cc", "#include <planner/sim/y.h>\n#include <vector>\n"}).size(), 1u);
  EXPECT_EQ(include_directions({"planner/dispatch/x.cc", "#include \"planner/perf/y.h\"\n"}).size(), 1u);
  EXPECT_EQ(include_directions({"planner/x.cc", "#include \"planner/base/y.h\"\n"}).size(), 1u);
  const std::string other_command = "#include \"controller/cli/top/y.h\"\n", live = "#include \"controller/cli/live/y.h\"\n";
  EXPECT_EQ(include_directions({"controller/cli/plan/x.cc", other_command + live}).size(), 1u);
  EXPECT_EQ(include_directions({"controller/cli/live/x.cc", other_command + live}).size(), 1u);
  EXPECT_TRUE(include_directions({"controller/cli/run_cli.cc", other_command + live}).empty());
}

// Given a planner file that reads a clock, the environment or a file, expects each to be found, but not in comments or strings.
TEST(TidyRules, PlannerPurityIsSeen) {
  EXPECT_EQ(planner_purity({"planner/a.cc", "#include <chrono>\nauto t = steady_clock::now();\n"}).size(), 2u);
  EXPECT_EQ(planner_purity({"planner/a.cc", "auto v = std::getenv(\"X\");\n"}).size(), 1u);
  EXPECT_EQ(planner_purity({"planner/a.cc", "auto y = YAML::LoadFile(p);\n"}).size(), 1u);
  EXPECT_TRUE(planner_purity({"planner/a.cc", "// no std::chrono here\nauto s = \"getenv\"; /* printf */\n"}).empty());
  EXPECT_TRUE(planner_purity({"gateway/a.cc", "#include <chrono>\n"}).empty());
}

// Given sources with and without an opening comment, expects those without to be found. A shebang may come first.
TEST(TidyRules, HeaderParagraphIsSeen) {
  EXPECT_EQ(header_paragraph({"gateway/a.cc", "#include <vector>\n"}).size(), 1u);
  EXPECT_EQ(header_paragraph({"gateway/a.cc", "// a.cc\n#include <vector>\n"}).size(), 1u);
  EXPECT_EQ(header_paragraph({"scripts/run", "#!/bin/sh\nexit 0\n"}).size(), 1u);
  EXPECT_TRUE(header_paragraph({"gateway/a.cc", "// Sends every request to the fastest free worker.\n"}).empty());
  EXPECT_TRUE(header_paragraph({"gateway/a.cc", "// See a.h.\n#include \"gateway/a.h\"\n"}).empty());
  EXPECT_TRUE(header_paragraph({"scripts/run", "#!/bin/sh\n# Runs everything that a person wants to run.\n"}).empty());
}

// Given a file of 801 lines, expects it to be found, but not one of 800.
TEST(TidyRules, FileSizeIsSeen) {
  const auto lines = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "\n";
    return text;
  };
  EXPECT_EQ(file_size({"gateway/a.cc", lines(801)}).size(), 1u);
  EXPECT_TRUE(file_size({"gateway/a.cc", lines(800)}).empty());
}

// Given a function of 101 lines in a namespace and in a class, expects it to be found by its name. A function of 100 lines, a
// test, a kernel and a table are allowed.
TEST(TidyRules, FunctionSizeIsSeen) {
  const auto text = [](const std::string& head, int lines, const std::string& margin = "") {
    std::string body = margin + head + "\n";
    for (int i = 0; i < lines; ++i) body += margin + "  if (a) {\n" + margin + "  }\n";
    return body + margin + "}\n";
  };
  const std::string long_head = "Result<int> Some::thing(int a,\n                       const std::string& text = {}) {";
  const SourceFile bad{"gateway/a.cc", "namespace a {\n\n" + text(long_head, 49) + "\n}  // namespace a\n"};
  ASSERT_EQ(function_size(bad), Findings{"gateway/a.cc:3: function Some::thing must have at most 100 lines (got 101)"});
  const std::string members = text("int small() const {", 1, "  ") + " private:\n" + text("int large() {", 50, "  ");
  EXPECT_EQ(function_size({"gateway/a.h", "class A {\n public:\n" + members + "};\n"}),
            Findings{"gateway/a.h:8: function large must have at most 100 lines (got 102)"});
  EXPECT_TRUE(function_size({"gateway/a.cc", text("int f() {", 49)}).empty());
  EXPECT_TRUE(function_size({"gateway/a.cc", text("constexpr Row kRows[] = {", 90)}).empty());
  EXPECT_TRUE(function_size({"tests/a_test.cc", text("TEST(A, B) {", 90)}).empty());
  EXPECT_TRUE(function_size({"worker/backend/cuda/kernels/a.h", text("void f() {", 90)}).empty());
}

// Given an include of Beast's parser, expects a finding everywhere except in the one header that may include it.
TEST(TidyRules, BeastsParserIsSeen) {
  const std::string text = "#include <boost/beast/core/string.hpp>\n#include <boost/beast/http/read.hpp>\n";
  EXPECT_EQ(beast_parser({"gateway/a.cc", text}).size(), 1u);
  EXPECT_TRUE(beast_parser({"metrics/net/beast_parser.h", text}).empty());
}

// Given a text that names a registry's host and one that does not, expects the first to be found with its line.
TEST(TidyRules, RegistryHostsAreSeen) {
  const std::string host = std::string("pypi") + ".org";
  const auto found = registry_hosts({"scripts/x", "a\nhttps://" + host + "/simple\n"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].find("scripts/x:2:"), 0u);
  EXPECT_TRUE(registry_hosts({"README.md", "see windlass.dev/v1alpha1 and k8s.io/api\n"}).empty());
}

// Given calls of pip and requirements files, expects findings for calls without hashes and for lines without a hash.
TEST(TidyRules, PinnedWheelsAreSeen) {
  const std::string call = std::string("V/bin/pip\" ins") + "tall ";
  EXPECT_EQ(pinned_wheels({"scripts/x", call + "numpy\n" + call + "--quiet -r some.txt\n"}).size(), 2u);
  EXPECT_EQ(pinned_wheels({"a.py", std::string("python3 -m pip ins") + "tall numpy==1\n"}).size(), 1u);
  EXPECT_TRUE(pinned_wheels({"scripts/x", call + "--require-hashes -r some.txt\nnvcc is installed through pip\n"}).empty());
  const std::string hash(64, 'a');
  EXPECT_TRUE(pinned_wheels({"requirements.txt", "#= a\na==1.0 --hash=sha256:" + hash + "\n"}).empty());
  for (const char* line : {"a", "a==1.0", "a>=1.0 --hash=sha256:", "--index-url x"}) {
    EXPECT_EQ(pinned_wheels({"tests/requirements.txt", line + hash + "\n"}).size(), 1u) << line;
  }
}

// Given marks of unfinished work, expects them to be found in comments too, but not inside other words.
TEST(TidyRules, UnfinishedWorkIsSeen) {
  EXPECT_EQ(unfinished({"gateway/a.cc", std::string("// TO") + "DO: later\n"}).size(), 1u);
  EXPECT_TRUE(unfinished({"gateway/a.cc", "// HACKATHON, before nowhere\n"}).empty());
}

// Given tests that sleep, are off, skip silently, have no comment or assert nothing, expects each to be found.
TEST(TidyRules, TestMannersAreSeen) {
  const auto about = [](const std::string& text) { return test_manners({"tests/unit/a_test.cc", text}).size(); };
  EXPECT_EQ(about("// Given x: y.\nTEST(A, B) { std::this_thread::sleep_for(1s); EXPECT_TRUE(x); }\n"), 1u);
  EXPECT_EQ(about("// Given x: y.\nTEST(A, DISABLED_B) { EXPECT_TRUE(x); }\n"), 1u);
  EXPECT_EQ(about("// Given x: y.\nTEST(A, B) { GTEST_SKIP(); EXPECT_TRUE(x); }\n"), 1u);
  EXPECT_EQ(about("TEST(A, B) { EXPECT_TRUE(x); }\n"), 1u);
  EXPECT_EQ(about("// Given x: y.\nTEST(A, B) { run(); }\n"), 1u);
  EXPECT_EQ(about("// Given x: y.\nTEST(A, B) { if (!gpu) GTEST_SKIP() << \"no GPU\"; EXPECT_TRUE(x); }\n"), 0u);
}

// Given a document with links and commands, expects those that do not exist to be found.
TEST(TidyRules, DocsRulesAreSeen) {
  const std::vector<SourceFile> files = {{"scripts/test", ""}, {"scripts/images/README.md", ""}};
  const SourceFile doc{
      "README.md",
      "[a](tests/CMakeLists.txt) [b](no/such.md) [c](https://example.com)\n    scripts/test\n    scripts/nothing\n"
      "scripts/images, scripts/images/ and scripts/images/README.md, scripts/tes, scripts/images/none\n"
      "build/release/windlass plan\nbuild/release/windlas plan\n"};
  EXPECT_EQ(docs_rules(doc, files, source_path()).size(), 5u);
}

// Given two folders, only one with a README.md, expects the other to be found.
TEST(TidyRules, FolderReadmesAreSeen) {
  const std::vector<SourceFile> files = {
      {"a/README.md", "1\n2\n3\n"}, {"a/x.cc", ""}, {"b/c/README.md", "1\n2\n3\n"}, {"top", ""}};
  ASSERT_EQ(folder_readmes(files).size(), 1u);
  EXPECT_EQ(folder_readmes(files)[0].find("b/:"), 0u);
}

// Given C++ with comments, strings, raw strings and digit separators, expects code_only to keep the code and the line numbers.
TEST(TidyRules, CodeOnlyBlanksCommentsAndStrings) {
  EXPECT_EQ(code_only("a // b\nc"), "a     \nc");
  EXPECT_EQ(code_only("f(\"x\\\"y\", 1'000, 'q')"), "f(\"    \", 1'000, ' ')");
  const std::string raw = code_only("auto s = R\"(std::getenv\n\")\"; g();");
  EXPECT_EQ(raw.find("getenv"), std::string::npos);
  EXPECT_NE(raw.find("\n"), std::string::npos);
  EXPECT_NE(raw.find("; g();"), std::string::npos);
}

// Given the tree, expects it to keep every rule. This is one test because ctest starts a process per test, and each would
// read the tree.
TEST(Tidy, TheTreeKeepsEveryRule) {
  const std::vector<SourceFile> tree = read_tree(source_path());
  ASSERT_GT(tree.size(), 20u) << "the tree was not found under " << source_path();
  for (const SourceFile& file : tree) {
    for (const auto rule : {include_directions, beast_parser, planner_purity, header_paragraph, file_size, function_size,
                            registry_hosts, pinned_wheels, unfinished, test_manners}) {
      for (const std::string& finding : rule(file)) ADD_FAILURE() << finding;
    }
    for (const std::string& finding : docs_rules(file, tree, source_path())) ADD_FAILURE() << finding;
  }
  for (const std::string& finding : folder_readmes(tree)) ADD_FAILURE() << finding;
  for (const std::string& finding : plain_english(tree)) ADD_FAILURE() << finding;
}

// Given the tree, expects the files that a newcomer looks for first.
TEST(Tidy, FirstFilesExist) {
  for (const char* path : {"README.md", "LICENSE", "CHANGELOG.md", ".clang-format", ".clang-tidy", ".editorconfig", ".ci/run",
                           "docs/architecture.md", "scripts/demo", "scripts/test", "scripts/setup"}) {
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(source_path()) / path)) << path << " does not exist";
  }
}

}  // namespace
}  // namespace windlass::tidy
