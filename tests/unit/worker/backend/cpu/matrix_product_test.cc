// Products with matrices against sums in double precision, whatever the batch and the number of threads.
#include "worker/backend/cpu/matrix_product.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/unit/worker/random_model.h"
#include "tests/unit/worker/reference_model.h"
#include "worker/backend/cpu/quantised.h"

namespace windlass::worker {
namespace {

using cpu::MatrixProduct;
using cpu::ThreadTeam;

std::vector<float> drawn(Rng& rng, std::int64_t count) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(rng.uniform(-1, 1));
  return numbers;
}

// A matrix in a format, and the numbers that it stands for.
struct Drawn {
  WeightMatrix matrix;
  std::vector<float> numbers;
};

Drawn drawn_matrix(Rng& rng, std::int64_t in, std::int64_t out, WeightFormat format) {
  Drawn made;
  made.numbers = drawn(rng, in * out);
  made.matrix = testing::weight_matrix(made.numbers, in, format);
  if (format == WeightFormat::kFp32) return made;
  for (std::int64_t row = 0; row < out; ++row) cpu::dequantise(made.matrix, in, row, 0, in, made.numbers.data() + row * in);
  return made;
}

constexpr WeightFormat kFormats[] = {WeightFormat::kFp32, WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8};

// Given random shapes, some with many tokens, matrices in every format, teams of several sizes and every kernel that this
// processor supports; expects the right sums, alone and added to existing values.
TEST(MatrixProduct, IsTheSumOfProducts) {
  Rng rng(3, "matrix products");
  for (int round = 0; round < 90; ++round) {
    const std::int64_t in = rng.integer(1, round % 3 == 0 ? 3000 : 90), out = rng.integer(1, 120);
    const std::int64_t tokens = rng.integer(1, round % 5 == 0 ? 2 * cpu::kFewTokens : 9);
    const Drawn w = drawn_matrix(rng, in, out, kFormats[round % 4]);
    const std::vector<float> x = drawn(rng, tokens * in), before = drawn(rng, tokens * out);
    ThreadTeam team(1 + round % 3);
    for (const cpu::FewTokensKernel* kernel : cpu::few_tokens_kernels()) {
      MatrixProduct product(team, *kernel);
      std::vector<float> y(before.size(), std::nanf("")), added = before;
      product.multiply(x.data(), w.matrix, y.data(), tokens, in, out);
      product.multiply(x.data(), w.matrix, added.data(), tokens, in, out, true);
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t o = 0; o < out; ++o) {
          double sum = 0;
          for (std::int64_t i = 0; i < in; ++i) {
            sum += static_cast<double>(x[static_cast<std::size_t>(t * in + i)]) *
                   static_cast<double>(w.numbers[static_cast<std::size_t>(o * in + i)]);
          }
          const auto at = static_cast<std::size_t>(t * out + o);
          ASSERT_NEAR(y[at], sum, 2e-4) << cpu::name_of(*kernel) << " " << tokens << " x " << in << " x " << out;
          ASSERT_NEAR(added[at], static_cast<double>(before[at]) + sum, 2e-4) << cpu::name_of(*kernel);
        }
      }
    }
  }
}

// Given each number of a format, alone in its row's product; expects exactly its value, with every kernel that this processor
// supports.
TEST(MatrixProduct, NumbersAreWhatTheyStandFor) {
  constexpr std::int64_t kIn = 300;
  ThreadTeam team(1);
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8}) {
    const bool bf16 = format == WeightFormat::kBf16;
    const std::int64_t out = bf16 ? 0x10000 / kIn + 1 : 8;
    WeightMatrix w{format};
    std::vector<double> expected;
    for (std::int64_t i = 0; i < out * kIn; ++i) {
      const auto half = static_cast<std::uint16_t>(i);
      const auto code = static_cast<std::uint8_t>(i);
      if (bf16) {
        const bool finite = (half & 0x7F80U) != 0x7F80U;
        w.halves.push_back(finite ? half : std::uint16_t{0});
        expected.push_back(testing::meaning(w.halves.back()));
      } else {
        const bool number = format == WeightFormat::kInt8 || (code & 0x7FU) != 0x7FU;
        w.codes.push_back(number ? code : std::uint8_t{0});
        expected.push_back(testing::meaning(w.codes.back(), format) * 0.5);
      }
    }
    if (!bf16) w.scales.assign(static_cast<std::size_t>(out), 0.5F);
    for (const cpu::FewTokensKernel* kernel : cpu::few_tokens_kernels()) {
      MatrixProduct product(team, *kernel);
      for (std::int64_t column = 0; column < kIn; ++column) {
        std::vector<float> alone(kIn), y(static_cast<std::size_t>(out));
        alone[static_cast<std::size_t>(column)] = 1;
        product.multiply(alone.data(), w, y.data(), 1, kIn, out);
        for (std::int64_t o = 0; o < out; ++o) {
          const auto at = static_cast<std::size_t>(o);
          ASSERT_EQ(y[at], expected[static_cast<std::size_t>(o * kIn + column)])
              << cpu::name_of(*kernel) << " " << to_string(format) << " " << o << " " << column;
        }
      }
    }
  }
}

// Given a token; expects the same bits alone, among the largest number of others, and on any number of threads.
TEST(MatrixProduct, ATokensResultDoesNotDependOnTheOthers) {
  Rng rng(4, "batches");
  const std::int64_t in = 1100, out = 205;
  for (const WeightFormat format : kFormats) {
    const Drawn w = drawn_matrix(rng, in, out, format);
    const std::vector<float> x = drawn(rng, cpu::kFewTokens * in);
    for (const cpu::FewTokensKernel* kernel : cpu::few_tokens_kernels()) {
      ThreadTeam one(1), three(3);
      MatrixProduct all_product(three, *kernel), product(one, *kernel);
      std::vector<float> all(static_cast<std::size_t>(cpu::kFewTokens * out));
      all_product.multiply(x.data(), w.matrix, all.data(), cpu::kFewTokens, in, out);
      for (const auto& [first, tokens] : {std::pair{0, 1}, std::pair{5, 3}, std::pair{64, 64}, std::pair{126, 2}}) {
        std::vector<float> some(static_cast<std::size_t>(tokens * out));
        product.multiply(x.data() + first * in, w.matrix, some.data(), tokens, in, out);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * out))
            << cpu::name_of(*kernel) << " " << to_string(format) << " " << first << " " << tokens;
      }
    }
  }
}

}  // namespace
}  // namespace windlass::worker
