// Tests `windlass check` on addresses that do not answer, and the program's name in help and errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// Given invalid command lines; expects exit code 2 and the rule.
TEST(CheckCommand, WrongUseIsExplained) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"check"}, "windlass check: URL"},
      {{"check", "localhost:9401"}, "must be http://HOST[:PORT][/PATH] or https://... (got 'localhost:9401')"},
      {{"check", "http://"}, "(got 'http://')"},
      {{"check", "--timeout=soon", "http://127.0.0.1:1"}, "soon"},
  };
  for (const auto& [arguments, message] : table) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, kUsage) << message;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

// Given an address where nothing listens; expects exit code 1, and the address with the reason. Given a missing file of
// certificates; expects its name immediately.
TEST(CheckCommand, NothingListens) {
  const Outcome outcome = run({"check", "--timeout=10ms", "http://127.0.0.1:1/healthz"});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("windlass check: no answer within 0.01s from\n  http://127.0.0.1:1/healthz: "));
  const Outcome no_file = run({"check", "--ca-file=/nowhere/ca.crt", "https://127.0.0.1:1"});
  EXPECT_EQ(no_file.code, kFailed);
  EXPECT_THAT(no_file.err, HasSubstr("/nowhere/ca.crt"));
}

// Given the name under which kubectl runs the program; expects `kubectl windlass` in help and errors.
TEST(PluginName, IsInHelpAndErrors) {
  EXPECT_THAT(run({"--help"}, {.program = "kubectl windlass"}).out, HasSubstr("kubectl windlass"));
  EXPECT_THAT(run({"explain", "--help"}, {.program = "kubectl windlass"}).out, HasSubstr("kubectl windlass explain"));
  EXPECT_THAT(run({"explain", "--help"}).out, HasSubstr("windlass explain"));
  EXPECT_THAT(run({"nonsense"}, {.program = "kubectl windlass"}).err,
              HasSubstr("kubectl windlass: command must be one of up, attach"));
}

}  // namespace
}  // namespace windlass::cli
