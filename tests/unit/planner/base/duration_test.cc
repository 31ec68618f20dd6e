// Tests of durations: parsing, printing, and that each inverts the other.
#include "planner/base/duration.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/effort.h"

namespace windlass {
namespace {

// Given a duration as people write it; expects its seconds. Given anything else; expects an error that says what was found.
TEST(Duration, Reads) {
  const std::vector<std::pair<const char*, double>> table = {{"500ms", 0.5},
                                                             {"30s", 30},
                                                             {"5m", 300},
                                                             {"1h", 3600},
                                                             {"1h30m", 5400},
                                                             {"1.5s", 1.5},
                                                             {"0s", 0},
                                                             {"0", 0},
                                                             {"1h1m1s1ms", 3661.001},
                                                             {"0.001ms", 1e-6},
                                                             {"250us", 250e-6},
                                                             {"5ns", 5e-9},
                                                             {"1.2345s", 1.2345},
                                                             {"1000000s", 1e6},
                                                             {"1h1h1h1h1h", 18000},
                                                             {"999999h", 3599996400.0}};
  for (const auto& [text, expected] : table) {
    const auto parsed = parse_duration_s(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_DOUBLE_EQ(*parsed, expected) << text;
  }
  for (const std::string text :
       {"", "5", "s", "-5s", "+5s", "5 s", "5s ", "5d", "5S", "1.s", ".5s", "1.2.3s", "1e3s", "1ss", "inf", "999999h1s"}) {
    const auto parsed = parse_duration_s(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().message, "must be a duration such as 500ms, 30s, 5m or 1h30m (got '" + text + "')");
  }
}

// Given seconds; expects the shortest duration, rounded if asked.
TEST(Duration, Prints) {
  EXPECT_EQ(print_duration(0), "0s");
  EXPECT_EQ(print_duration(-1), "0s");
  EXPECT_EQ(print_duration(std::numeric_limits<double>::quiet_NaN()), "0s");
  EXPECT_EQ(print_duration(std::numeric_limits<double>::infinity()), "999999h");
  EXPECT_EQ(print_duration(0.5), "500ms");
  EXPECT_EQ(print_duration(0.0123), "12.3ms");
  EXPECT_EQ(print_duration(90), "90s");
  EXPECT_EQ(print_duration(300), "5m");
  EXPECT_EQ(print_duration(7200), "2h");
  EXPECT_EQ(print_duration(3600.5), "1h500ms");
  EXPECT_EQ(print_duration_rounded(0.43029), "430ms");
  EXPECT_EQ(print_duration_rounded(0.0123456), "12.3ms");
  EXPECT_EQ(print_duration_rounded(12.3456), "12300ms");
  EXPECT_EQ(print_duration_rounded(0), "0s");
}

// Given a thousand random durations of whole microseconds; expects each back from its text.
TEST(Duration, PrintsWhatItReadsBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < effort(100, 1000); ++i) {
    const int digits = static_cast<int>(random() % 15) + 1;
    const double seconds = static_cast<double>(random() % static_cast<std::uint64_t>(std::pow(10, digits))) / 1e6;
    const auto back = parse_duration_s(print_duration(seconds));
    ASSERT_TRUE(back.ok()) << print_duration(seconds);
    EXPECT_NEAR(*back, seconds, 1e-7) << print_duration(seconds);
  }
}

}  // namespace
}  // namespace windlass
