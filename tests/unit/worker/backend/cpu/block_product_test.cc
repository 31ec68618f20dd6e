// Products with quantised blocks against sums in double precision, with each kernel that this processor supports.
#include "worker/backend/cpu/block_product.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/unit/worker/random_blocks.h"
#include "worker/backend/cpu/matrix_product.h"

namespace windlass::worker {
namespace {

using cpu::CodedTokens;
using cpu::MatrixProduct;
using cpu::ThreadTeam;

// Rows of any type, two types at times, and activations.
struct BlockCase {
  BlockCase(Rng& rng, std::int64_t tiles_of_k, std::int64_t rows) {
    std::vector<GgmlType> types{testing::kBlockTypes[rng.integer(0, 7)]};
    if (rng.integer(0, 2) == 0) types.push_back(testing::kBlockTypes[rng.integer(0, 7)]);
    std::vector<std::vector<std::byte>> tensors;
    for (const GgmlType type : types) tensors.push_back(testing::random_blocks(rng, type, rows * 256 * tiles_of_k));
    matrix.format = WeightFormat::kBlocks;
    matrix.blocks = testing::block_matrix(types, tensors, 256 * tiles_of_k);
  }
  [[nodiscard]] std::int64_t rows() const { return matrix.blocks.rows; }
  [[nodiscard]] std::int64_t columns() const { return matrix.blocks.columns; }

  WeightMatrix matrix;
};

std::vector<float> drawn(Rng& rng, std::int64_t count) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(rng.uniform(-1, 1));
  return numbers;
}

// Given activations; expects codes that are the nearest integers for a scale of 1/127 of the largest of 32, with their sums,
// and zeros for zeros.
TEST(BlockProduct, CodesAreTheNearest) {
  Rng rng(1, "codes of activations");
  ThreadTeam team(3);
  CodedTokens coded;
  for (const std::int64_t tokens : {1, 7, 200}) {
    const std::int64_t columns = 1024;
    std::vector<float> x = drawn(rng, tokens * columns);
    std::fill_n(x.begin() + 64, 32, 0.0F);
    cpu::code_tokens(x.data(), tokens, columns, team, coded);
    ASSERT_EQ(coded.tokens, tokens);
    ASSERT_EQ(coded.tiles, columns / 32);
    for (std::size_t tile = 0; tile < static_cast<std::size_t>(tokens * coded.tiles); ++tile) {
      const auto at = x.begin() + static_cast<std::ptrdiff_t>(32 * tile);
      float largest = 0;
      for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(at[i]));
      ASSERT_EQ(coded.scales[tile], largest / 127);
      int sums[2] = {};
      for (int i = 0; i < 32; ++i) {
        const int code = coded.codes[32 * tile + static_cast<std::size_t>(i)];
        ASSERT_LE(std::abs(code), 127);
        ASSERT_NEAR(coded.scales[tile] * static_cast<float>(code), at[i], 0.5001F * coded.scales[tile]);
        sums[i / 16] += code;
      }
      ASSERT_EQ(coded.sums[2 * tile], sums[0]);
      ASSERT_EQ(coded.sums[2 * tile + 1], sums[1]);
    }
  }
}

// Given random shapes, types and numbers of tokens, teams of several sizes and every kernel that this processor supports;
// expects the sums of products of the coded numbers, alone and added to existing values.
TEST(BlockProduct, IsTheSumOfProducts) {
  Rng rng(2, "block products");
  for (int round = 0; round < 60; ++round) {
    const BlockCase w(rng, rng.integer(1, round % 5 == 0 ? 9 : 2), rng.integer(1, 70));
    const std::int64_t tokens = rng.integer(1, round % 10 == 0 ? 150 : 20), in = w.columns(), out = w.rows();
    const std::vector<float> x = drawn(rng, tokens * in), before = drawn(rng, tokens * out);
    ThreadTeam team(1 + round % 3);
    CodedTokens coded;
    cpu::code_tokens(x.data(), tokens, in, team, coded);
    std::vector<float> row(static_cast<std::size_t>(in));
    std::vector<double> expected(before.size()), sizes = expected;
    for (std::int64_t o = 0; o < out; ++o) {
      floats_of_row(w.matrix.blocks, o, row.data());
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < in; ++i) {
          const auto at = static_cast<std::size_t>(t * in + i);
          const double product = static_cast<double>(row[static_cast<std::size_t>(i)]) * coded.codes[at] *
                                 static_cast<double>(coded.scales[at / 32]);
          expected[static_cast<std::size_t>(t * out + o)] += product;
          sizes[static_cast<std::size_t>(t * out + o)] += std::fabs(product);
        }
      }
    }
    for (const cpu::FewTokensKernel* kernel : cpu::few_tokens_kernels()) {
      MatrixProduct product(team, *kernel);
      std::vector<float> y(before.size(), std::nanf("")), added = before;
      product.multiply(x.data(), w.matrix, y.data(), tokens, in, out);
      product.multiply(x.data(), w.matrix, added.data(), tokens, in, out, true);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double tolerance = 2e-5 * sizes[i] + 1e-6;
        ASSERT_NEAR(y[i], expected[i], tolerance) << cpu::name_of(*kernel) << " " << tokens << " x " << in << " x " << out;
        ASSERT_NEAR(added[i], static_cast<double>(before[i]) + expected[i], tolerance) << cpu::name_of(*kernel);
      }
    }
  }
}

// Given a token; expects the same bits alone, among any number of others, and on any number of threads.
TEST(BlockProduct, ATokensResultDoesNotDependOnTheOthers) {
  Rng rng(3, "batches of block products");
  for (int round = 0; round < 8; ++round) {
    const BlockCase w(rng, 3, 205);
    const std::int64_t tokens = 300, in = w.columns(), out = w.rows();
    const std::vector<float> x = drawn(rng, tokens * in);
    for (const cpu::FewTokensKernel* kernel : cpu::few_tokens_kernels()) {
      if (std::string_view(cpu::name_of(*kernel)) == "any" && round > 0) continue;  // processes one token at a time anyway
      ThreadTeam one(1), three(3);
      MatrixProduct all_product(three, *kernel), product(one, *kernel);
      std::vector<float> all(static_cast<std::size_t>(tokens * out));
      all_product.multiply(x.data(), w.matrix, all.data(), tokens, in, out);
      for (const auto& [first, count] : {std::pair{0, 1}, std::pair{5, 3}, std::pair{64, 65}, std::pair{298, 2}}) {
        std::vector<float> some(static_cast<std::size_t>(count * out));
        product.multiply(x.data() + first * in, w.matrix, some.data(), count, in, out);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * out))
            << cpu::name_of(*kernel) << " " << first << " " << count;
      }
    }
  }
}

// Given an activation that is NaN; expects NaN for all results of its token, and numbers for the others.
TEST(BlockProduct, NanGivesNan) {
  Rng rng(4, "no numbers");
  const BlockCase w(rng, 1, 20);
  for (const float wrong : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = drawn(rng, 2 * w.columns());
    x[77] = wrong;
    for (const cpu::FewTokensKernel* kernel : cpu::few_tokens_kernels()) {
      ThreadTeam team(1);
      MatrixProduct product(team, *kernel);
      std::vector<float> y(static_cast<std::size_t>(2 * w.rows()));
      product.multiply(x.data(), w.matrix, y.data(), 2, w.columns(), w.rows());
      for (std::int64_t o = 0; o < w.rows(); ++o) {
        EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(o)])) << cpu::name_of(*kernel) << " " << o;
        EXPECT_TRUE(std::isfinite(y[static_cast<std::size_t>(w.rows() + o)])) << cpu::name_of(*kernel) << " " << o;
      }
    }
  }
}

}  // namespace
}  // namespace windlass::worker
