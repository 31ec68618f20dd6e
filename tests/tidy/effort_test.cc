// tests/effort.h: the setting that gives random tests their size.
#include "tests/effort.h"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

namespace windlass {
namespace {

// Given the names of the setting, expects their efforts; an empty name is CI, and other names are refused.
TEST(Effort, HasTwoNames) {
  EXPECT_EQ(effort_named(""), Effort::kCi);
  EXPECT_EQ(effort_named("ci"), Effort::kCi);
  EXPECT_EQ(effort_named("full"), Effort::kFull);
  EXPECT_EQ(effort_named("Full"), std::nullopt);
  EXPECT_EQ(effort_named("nightly"), std::nullopt);
}

// Given another value of the variable, expects the program to exit with a message that lists the names.
TEST(EffortDeathTest, RefusesOtherNames) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT((setenv("WINDLASS_TEST_EFFORT", "fast", 1), static_cast<void>(effort_level())), testing::ExitedWithCode(2),
              "WINDLASS_TEST_EFFORT: must be ci or full \\(got fast\\)");
}

// Given seven cases and three callers, expects one caller to try each case in CI, and all callers with full effort.
TEST(Effort, SharesCasesOut) {
  const std::vector<int> cases = {1, 2, 3, 4, 5, 6, 7};
  std::vector<int> tried;
  for (std::size_t turn = 0; turn < 3; ++turn) {
    const std::vector<int> own = effort_share(cases, turn, 3);
    EXPECT_EQ(own.size(), effort(turn == 0 ? std::size_t{3} : std::size_t{2}, cases.size()));
    tried.insert(tried.end(), own.begin(), own.end());
  }
  for (const int one : cases) EXPECT_EQ(std::count(tried.begin(), tried.end(), one), effort(1, 3)) << one;
}

}  // namespace
}  // namespace windlass
