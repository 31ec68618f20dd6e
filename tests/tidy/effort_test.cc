// tests/effort.h: the setting that gives random tests their size.
#include "tests/effort.h"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

namespace windlass {
namespace {

// Given the names of the setting, expect the efforts; no name is CI, and any other is none.
TEST(Effort, HasTwoNames) {
  EXPECT_EQ(effort_named(""), Effort::kCi);
  EXPECT_EQ(effort_named("ci"), Effort::kCi);
  EXPECT_EQ(effort_named("full"), Effort::kFull);
  EXPECT_EQ(effort_named("Full"), std::nullopt);
  EXPECT_EQ(effort_named("nightly"), std::nullopt);
}

// Given another value of the variable, expect the program to end and to say what is allowed.
TEST(EffortDeathTest, RefusesOtherNames) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT((setenv("WINDLASS_TEST_EFFORT", "fast", 1), static_cast<void>(effort_level())), testing::ExitedWithCode(2),
              "WINDLASS_TEST_EFFORT: must be ci or full \\(got fast\\)");
}

// Given seven cases and three callers, expect each case to be tried by one caller in CI and by all of them with full effort.
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
