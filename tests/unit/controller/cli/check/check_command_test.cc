// `windlass check` and the two names of the program: what is said of addresses that do not answer, and under which name help
// speaks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// Given command lines that cannot be meant: exit code 2, and what is allowed.
TEST(CheckCommand, WrongUseIsExplained) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"check"}, "windlass check: URL"},
      {{"check", "localhost:9401"}, "found 'localhost:9401', allowed is http://HOST[:PORT][/PATH]"},
      {{"check", "http://"}, "found 'http://'"},
      {{"check", "--timeout=soon", "http://127.0.0.1:1"}, "soon"},
  };
  for (const auto& [arguments, message] : table) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, kUsage) << message;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

// Given an address where nobody listens: exit code 1, and the address with the reason. Given a file of certificates that is not
// there: at once, and by name.
TEST(CheckCommand, NobodyThere) {
  const Outcome outcome = run({"check", "--timeout=10ms", "http://127.0.0.1:1/healthz"});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("windlass check: no answer within 0.01s from\n  http://127.0.0.1:1/healthz: "));
  const Outcome no_file = run({"check", "--ca-file=/nowhere/ca.crt", "https://127.0.0.1:1"});
  EXPECT_EQ(no_file.code, kFailed);
  EXPECT_THAT(no_file.err, HasSubstr("/nowhere/ca.crt"));
}

// Given the name under which kubectl runs it, help and mistakes speak of `kubectl windlass`.
TEST(PluginName, IsInHelpAndErrors) {
  EXPECT_THAT(run({"--help"}, {.program = "kubectl windlass"}).out, HasSubstr("kubectl windlass"));
  EXPECT_THAT(run({"explain", "--help"}, {.program = "kubectl windlass"}).out, HasSubstr("kubectl windlass explain"));
  EXPECT_THAT(run({"explain", "--help"}).out, HasSubstr("windlass explain"));
  EXPECT_THAT(run({"nonsense"}, {.program = "kubectl windlass"}).err,
              HasSubstr("kubectl windlass: found 'nonsense', allowed are the commands"));
}

}  // namespace
}  // namespace windlass::cli
