// Tests tables and numbers as text.
#include "controller/cli/console/text_table.h"

#include <gtest/gtest.h>

namespace windlass::cli {
namespace {

// Given cells of different widths, one with a multi-byte character; expects aligned columns without trailing spaces.
TEST(TextTable, ColumnsLineUp) {
  TextTable table({"A", "LONG NAME", "C"});
  table.add({"x", "1", ""});
  table.add({"≤ yyyy", "22", "end"});
  EXPECT_EQ(table.text(),
            "A       LONG NAME  C\n"
            "x       1\n"
            "≤ yyyy  22         end\n");
}

// Given times of each size, an unknown one and a NaN; expects the usual unit for each.
TEST(TextTable, Seconds) {
  EXPECT_EQ(seconds_text(0.0123), "12.3ms");
  EXPECT_EQ(seconds_text(0.5), "500ms");
  EXPECT_EQ(seconds_text(0.9999), "1.00s");
  EXPECT_EQ(seconds_text(2.5), "2.50s");
  EXPECT_EQ(seconds_text(90), "90.0s");
  EXPECT_EQ(seconds_text(std::nullopt), "-");
  EXPECT_EQ(seconds_text(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(seconds_text(0.001743, Bound::kNone), "1.74ms");
  EXPECT_EQ(seconds_text(12.64, Bound::kNone), "12.6s");
  EXPECT_EQ(seconds_text(0.01, Bound::kBelow), "<10ms");
  EXPECT_EQ(seconds_text(0.5, Bound::kBelow), "<500ms");
  EXPECT_EQ(seconds_text(500, Bound::kAbove), ">500s");
  EXPECT_EQ(seconds_text(9e4, Bound::kAbove), ">90000s");
  EXPECT_EQ(seconds_text(std::nullopt, Bound::kNone), "-");
}

// Given shares, sizes and plain numbers; expects each with its unit.
TEST(TextTable, Numbers) {
  EXPECT_EQ(percent_text(0.957), "95.7%");
  EXPECT_EQ(percent_text(std::nullopt), "-");
  EXPECT_EQ(number_text(3.14159), "3.14");
  EXPECT_EQ(number_text(7, 0), "7");
  EXPECT_EQ(bytes_text(17179869184.0), "16.0GiB");
  EXPECT_EQ(bytes_text(100), "100B");
}

// Given prose longer than the width; expects breaks at spaces, and every line indented.
TEST(TextTable, Wrapping) {
  EXPECT_EQ(wrapped("one two three", 2, 9), "  one two\n  three\n");
  EXPECT_EQ(wrapped("", 2), "");
}

}  // namespace
}  // namespace windlass::cli
