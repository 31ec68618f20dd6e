// Tests of the CSV reader: valid texts, errors with line and column, and foreign bytes.
#include "planner/perf/csv_rows.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

// Given columns in another order, CR LF, empty lines and no newline at the end: fields are found by name.
TEST(CsvRows, ReadsByName) {
  const auto csv = CsvRows::parse("b,extra,a\r\n1.5,x,one\r\n\r\n2e3,,two", {"a", "b"});
  ASSERT_TRUE(csv.ok()) << csv.error().message;
  ASSERT_EQ(csv->rows(), 2u);
  EXPECT_EQ(*csv->text(0, "a"), "one");
  EXPECT_EQ(*csv->number(0, "b", 0, 10), 1.5);
  EXPECT_EQ(*csv->number(1, "b", 0, 1e6), 2000);
  EXPECT_TRUE(csv->has("extra"));
  EXPECT_FALSE(csv->has("c"));
}

// Given a column looked up before: the same fields and the same errors as by name, and borrowed words.
TEST(CsvRows, ReadsByPlace) {
  const auto csv = CsvRows::parse("b,a\n1.5,one\n,two\n", {"a", "b"});
  ASSERT_TRUE(csv.ok()) << csv.error().message;
  const CsvRows::Column a = csv->column("a"), b = csv->column(std::string("b"));
  EXPECT_EQ(*csv->word(0, a), "one");
  EXPECT_EQ(*csv->text(1, a), "two");
  EXPECT_EQ(*csv->number(0, b, 0, 10), 1.5);
  EXPECT_EQ(csv->field(1, b), "");
  EXPECT_EQ(csv->word(1, b).error().message, csv->text(1, "b").error().message);
  EXPECT_EQ(csv->number(1, b, 0, 9).error().message, "line 3: b: must be a number from 0 to 9 (got '')");
  EXPECT_EQ(csv->integer(0, a, 1, 2).error().message, csv->integer(0, "a", 1, 2).error().message);
}

// Given a text without its column, or a row too short: the error names them.
TEST(CsvRows, NamesWhatIsMissing) {
  EXPECT_EQ(CsvRows::parse("a,c\n1,2\n", {"a", "b"}).error().message, "line 1: must have the columns a, b (missing: b)");
  EXPECT_EQ(CsvRows::parse("", {"a"}).error().message, "line 1: must have the columns a (missing: a)");
  EXPECT_EQ(CsvRows::parse("a,b\n1,2\n\n3\n", {"a"}).error().message,
            "line 4: must have 2 fields, as in the first line (got 1)");
}

// Given fields that are not numbers or out of range: line, column, what was found and what is allowed.
TEST(CsvRows, NamesBadFields) {
  const auto csv = CsvRows::parse("a,b\n,1.5\nx\ty,7\n", {"a", "b"});
  ASSERT_TRUE(csv.ok());
  EXPECT_EQ(csv->text(0, "a").error().message, "line 2: a: must be a name (got '')");
  EXPECT_EQ(csv->number(0, "a", 0, 9).error().message, "line 2: a: must be a number from 0 to 9 (got '')");
  EXPECT_EQ(csv->integer(0, "b", 1, 8).error().message, "line 2: b: must be a whole number from 1 to 8 (got '1.5')");
  EXPECT_EQ(csv->number(1, "a", 0, 9).error().message, "line 3: a: must be a number from 0 to 9 (got 'x?y')");
  EXPECT_EQ(csv->integer(1, "b", 1, 6).error().message, "line 3: b: must be a whole number from 1 to 6 (got '7')");
  for (const char* bad : {"nan", "inf", "1 ", "0x1", "1e999", "--1"}) {
    const std::string text = std::string("a\n") + bad + "\n";
    EXPECT_FALSE(CsvRows::parse(text, {"a"})->number(0, "a", -1e9, 1e9).ok()) << bad;
  }
}

// Given texts of random bytes that are common in CSV: each is read or refused, and no field is longer than its line.
TEST(CsvRows, ForeignBytes) {
  Rng rng(5, "fuzz");
  const std::string letters = "a,b\n\r1.e-\x01\xff";
  int read = 0;
  for (int round = 0; round < effort(2000, 20'000); ++round) {
    std::string text;
    for (std::int64_t n = rng.integer(0, 30); n > 0; --n) {
      text += letters[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(letters.size()) - 1))];
    }
    const auto csv = CsvRows::parse(text, {"a"});
    if (!csv.ok()) continue;
    ++read;
    for (std::size_t row = 0; row < csv->rows(); ++row) {
      const auto value = csv->number(row, "a", -1e6, 1e6);
      EXPECT_TRUE(!value.ok() || std::abs(*value) <= 1e6);
      const auto field = csv->text(row, "a");
      EXPECT_TRUE(!field.ok() || field->size() < text.size());
    }
  }
  EXPECT_GT(read, effort(3, 50));
}

}  // namespace
}  // namespace windlass::planner
