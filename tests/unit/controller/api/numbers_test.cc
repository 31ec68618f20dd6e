// Parsing and printing quantities and fractions, which are inverses of each other.
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "controller/api/quantity.h"
#include "tests/effort.h"

namespace windlass::api {
namespace {

// Given a quantity; expects its exact value. Given anything else; expects an error.
TEST(Quantity, Reads) {
  const std::vector<std::pair<const char*, std::optional<double>>> table = {{"80Gi", 85899345920.0},
                                                                            {"989T", 989e12},
                                                                            {"3.35T", 3350000000000.0},
                                                                            {"1.5k", 1500},
                                                                            {"100m", 0.1},
                                                                            {"100", 100},
                                                                            {"1e9", 1e9},
                                                                            {"1E", 1e18},
                                                                            {"0.5Gi", 536870912},
                                                                            {"", std::nullopt},
                                                                            {"Gi", std::nullopt},
                                                                            {"-1Gi", std::nullopt},
                                                                            {"1 Gi", std::nullopt},
                                                                            {"1gi", std::nullopt},
                                                                            {"1GB", std::nullopt},
                                                                            {"1.Gi", std::nullopt},
                                                                            {"1e999", std::nullopt}};
  for (const auto& [text, expected] : table) {
    const auto parsed = parse_quantity(text);
    ASSERT_EQ(parsed.ok(), expected.has_value()) << text;
    EXPECT_EQ(parsed.value_or(0), expected.value_or(0)) << text;
  }
  EXPECT_FALSE(parse_bytes("9999E").ok());
  EXPECT_EQ(parse_bytes("80Gi").value(), 85899345920);
}

// Given values; expects the shortest exact text.
TEST(Quantity, Prints) {
  EXPECT_EQ(print_bytes(85899345920), "80Gi");
  EXPECT_EQ(print_bytes(80000000000), "80G");
  EXPECT_EQ(print_bytes(1610612736), "1536Mi");
  EXPECT_EQ(print_bytes(1), "0.001k");
  EXPECT_EQ(print_quantity(989e12), "989T");
  EXPECT_EQ(print_quantity(3350e9), "3.35T");
  EXPECT_EQ(print_quantity(1979e12), "1.979P");
  EXPECT_EQ(print_quantity(20e9), "20G");
}

// Given a fraction; expects its value. Integers print without a point, and large and small values without an exponent.
TEST(Fraction, ReadsAndPrints) {
  EXPECT_EQ(parse_fraction("2.50").value(), 2.5);
  EXPECT_EQ(parse_fraction("99").value(), 99);
  for (const char* bad : {"", "-1", "1.", ".5", "1e3", "1,5", "NaN", " 1"}) EXPECT_FALSE(parse_fraction(bad).ok()) << bad;
  EXPECT_EQ(print_fraction(2.5), "2.5");
  EXPECT_EQ(print_fraction(4), "4");
  EXPECT_EQ(print_fraction(1e20), "100000000000000000000");
  EXPECT_EQ(print_fraction(0.00001), "0.000010000");
  EXPECT_EQ(print_fraction_rounded(0.987654), "0.9877");
  EXPECT_EQ(print_fraction_rounded(12.34567), "12.35");
  EXPECT_EQ(print_fraction_rounded(123456.7), "123457");
  EXPECT_EQ(print_fraction_rounded(-1), "0");
}

}  // namespace
}  // namespace windlass::api
