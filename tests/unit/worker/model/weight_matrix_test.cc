// 8-bit and 16-bit weights: nearest codes, scales without clipping, and parts that equal those of the whole.
#include "worker/model/weight_matrix.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/unit/worker/random_model.h"
#include "tests/unit/worker/reference_model.h"
#include "worker/model/ggml_blocks.h"

namespace windlass::worker {
namespace {

using testing::meaning;

// Given the value of each code; expects that code, except -0. Given numbers between and beyond; expects the nearest code, ties
// to even.
TEST(WeightMatrix, Fp8IsTheNearestCode) {
  const auto value_of = [](int code) { return meaning(static_cast<std::uint8_t>(code), WeightFormat::kFp8); };
  for (int code = 0; code <= 0x7E; ++code) {
    EXPECT_EQ(fp8_from_float(static_cast<float>(value_of(code))), code);
    EXPECT_EQ(fp8_from_float(static_cast<float>(-value_of(code))), code | 0x80);
    if (code == 0) continue;
    const double middle = (value_of(code - 1) + value_of(code)) / 2;  // exact in FP32
    EXPECT_EQ(fp8_from_float(static_cast<float>(middle)), code % 2 == 0 ? code : code - 1);
    EXPECT_EQ(fp8_from_float(std::nextafterf(static_cast<float>(middle), 1000)), code);
    EXPECT_EQ(fp8_from_float(std::nextafterf(static_cast<float>(middle), -1000)), code - 1);
  }
  EXPECT_EQ(value_of(0x7E), 448);
  EXPECT_EQ(fp8_from_float(1e-30F), 0);
}

// Given BF16 numbers; expects them back. Given numbers between two of them; expects the nearest, ties to even, and nothing if
// it would be infinite.
TEST(WeightMatrix, Bf16IsTheNearestHalf) {
  for (std::uint32_t half = 0; half < 0x7F7FU; half += 7) {
    const double low = meaning(static_cast<std::uint16_t>(half)), high = meaning(static_cast<std::uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact in FP32
    EXPECT_EQ(bf16_from_float(static_cast<float>(low)), half);
    EXPECT_EQ(bf16_from_float(static_cast<float>(-low)), half | 0x8000U);
    EXPECT_EQ(bf16_from_float(middle), half % 2 == 0 ? half : half + 1);
    EXPECT_EQ(bf16_from_float(std::nextafterf(middle, std::numeric_limits<float>::infinity())), half + 1);
    EXPECT_EQ(bf16_from_float(std::nextafterf(middle, 0)), half);
  }
  WeightMatrix matrix{WeightFormat::kBf16};
  EXPECT_TRUE(append_row(matrix, std::vector<float>{3.38e38F}, 0, 1));
  EXPECT_FALSE(append_row(matrix, std::vector<float>{std::numeric_limits<float>::max()}, 0, 1));
  EXPECT_EQ(matrix.halves.size(), 1U);
}

// Given rows in BF16; expects a part of them bit for bit, including zeros of both signs and the smallest numbers. If any number
// in the row is not finite, nothing is appended.
TEST(WeightMatrix, Bf16RowsAreTakenAsTheyAre) {
  const std::vector<std::uint16_t> row{0x3F80, 0x8000, 0x0001, 0x7F7F, 0xFF7F, 0x0000};
  WeightMatrix matrix{WeightFormat::kBf16};
  EXPECT_TRUE(append_row(matrix, row, 1, 5));
  EXPECT_EQ(matrix.halves, (std::vector<std::uint16_t>{0x8000, 0x0001, 0x7F7F, 0xFF7F}));
  for (const std::uint16_t odd : {0x7F80, 0xFF80, 0x7FC0, 0xFF81}) {
    std::vector<std::uint16_t> damaged = row;
    damaged[0] = odd;
    EXPECT_FALSE(append_row(matrix, damaged, 1, 5));
  }
  EXPECT_EQ(matrix.halves.size(), 4U);
}

// Given random rows; expects each number to differ from its code's value by at most half a step: of 1/127 of the row's largest
// for INT8; of a sixteenth of itself, or of 2^-9 of 1/448 of the largest, for FP8. The largest is unchanged.
TEST(WeightMatrix, RowsKeepTheirNumbers) {
  Rng rng(1, "rows");
  for (int round = 0; round < 300; ++round) {
    std::vector<float> row(static_cast<std::size_t>(rng.integer(1, 60)));
    const double size = std::ldexp(1.0, static_cast<int>(rng.integer(-60, 60)));
    for (float& value : row) value = static_cast<float>(size * std::pow(rng.uniform(), 4) * (rng.uniform() < 0.5 ? -1 : 1));
    double largest = 0;
    for (const float value : row) largest = std::max(largest, std::fabs(static_cast<double>(value)));
    for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kFp8}) {
      const WeightMatrix matrix = testing::weight_matrix(row, static_cast<std::int64_t>(row.size()), format);
      ASSERT_EQ(matrix.codes.size(), row.size());
      ASSERT_EQ(matrix.scales.size(), 1U);
      for (std::size_t i = 0; i < row.size(); ++i) {
        const auto value = static_cast<double>(row[i]);
        const double kept = meaning(matrix.codes[i], format) * static_cast<double>(matrix.scales[0]);
        const double step =
            format == WeightFormat::kInt8 ? largest / 127 : std::max(std::fabs(value) / 8, std::ldexp(largest / 448, -9));
        ASSERT_LE(std::fabs(kept - value), step / 2 * (1 + 1e-5)) << to_string(format) << " " << value << " of " << largest;
        if (std::fabs(value) == largest) {
          EXPECT_NEAR(kept / value, 1, 1e-6);
        }
      }
    }
  }
}

// Given a part of a row; expects the whole row's codes. Given zeros or numbers below FP32's normal range; expects zeros. Given
// non-finite numbers; expects nothing to be appended, except in FP32.
TEST(WeightMatrix, PartsAndOddRows) {
  const std::vector<float> row{0.5F, -3, 1, 2};
  for (const WeightFormat format : {WeightFormat::kFp32, WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8}) {
    const WeightMatrix whole = testing::weight_matrix(row, 4, format);
    WeightMatrix part{format};
    ASSERT_TRUE(append_row(part, row, 2, 4));
    EXPECT_EQ(part.scales, whole.scales);
    EXPECT_EQ(part.elements(), 2);
    for (std::size_t i = 0; i < part.codes.size(); ++i) EXPECT_EQ(part.codes[i], whole.codes[2 + i]);
    for (std::size_t i = 0; i < part.halves.size(); ++i) EXPECT_EQ(part.halves[i], whole.halves[2 + i]);
    for (const float odd : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      WeightMatrix none{format};
      EXPECT_EQ(append_row(none, std::vector<float>{1, odd}, 0, 1), format == WeightFormat::kFp32);
      EXPECT_EQ(none.empty(), format != WeightFormat::kFp32);
    }
    if (format == WeightFormat::kFp32 || format == WeightFormat::kBf16) continue;
    const WeightMatrix zeros = testing::weight_matrix({0, 0, 1e-42F, -1e-40F}, 2, format);
    EXPECT_EQ(zeros.codes, (std::vector<std::uint8_t>{0, 0, 0, 0}));
    EXPECT_EQ(zeros.scales, (std::vector<float>{0, 0}));
  }
}

}  // namespace
}  // namespace windlass::worker
