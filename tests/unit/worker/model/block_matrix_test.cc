// Matrices of quantised blocks: their numbers are the file's, whichever part of it they hold, and F16 rounds correctly.
#include "worker/model/block_matrix.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/unit/worker/random_blocks.h"

namespace windlass::worker {
namespace {

using testing::kBlockTypes;
using testing::random_blocks;

// Given each half and numbers between two of them; expects the nearest half, ties to even.
TEST(F16, RoundsToNearest) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float half = float_from_f16(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(f16_from_float(half), bits);
    ASSERT_EQ(f16_from_float(-half), bits | 0x8000U);
    if (bits == 0x7BFF) continue;
    const float next = float_from_f16(static_cast<std::uint16_t>(bits + 1)), middle = half + (next - half) / 2;
    ASSERT_EQ(f16_from_float(middle), bits + bits % 2) << half;
    ASSERT_EQ(f16_from_float(std::nextafter(middle, 0.0F)), bits) << half;
    ASSERT_EQ(f16_from_float(std::nextafter(middle, next)), bits + 1) << half;
  }
  EXPECT_EQ(f16_from_float(65519.99F), 0x7BFF);
  EXPECT_EQ(f16_from_float(65520.0F), 0x7C00);
  EXPECT_EQ(f16_from_float(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(std::nanf("")))));
}

// Given matrices of each type, and of two types together; expects the file's numbers in each row, with the scales of the K
// types rounded to eleven bits.
TEST(BlockMatrix, HasTheFilesNumbers) {
  Rng rng(1, "block matrices");
  for (int round = 0; round < 120; ++round) {
    const std::int64_t columns = 256 * rng.integer(1, 3);
    std::vector<GgmlType> types{kBlockTypes[round % 8]};
    if (round % 3 == 0) types.push_back(kBlockTypes[rng.integer(0, 7)]);
    std::vector<std::vector<std::byte>> tensors;
    for (const GgmlType type : types) tensors.push_back(random_blocks(rng, type, columns * rng.integer(1, 40)));
    const BlockMatrix matrix = testing::block_matrix(types, tensors, columns);
    ASSERT_EQ(matrix.bytes(), BlockMatrix::bytes(matrix.coding, matrix.rows, columns));
    std::vector<float> expected(static_cast<std::size_t>(columns)), found = expected;
    std::int64_t row = 0;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const GgmlTypeInfo& info = info_of(types[i]);
      const bool exact = info.block_numbers == 32;
      const auto numbers = static_cast<std::int64_t>(tensors[i].size()) / info.block_bytes * info.block_numbers;
      for (std::int64_t first = 0; first < numbers; first += columns, ++row) {
        floats_of_blocks(info, tensors[i], first, expected);
        floats_of_row(matrix, row, found.data());
        // At most 63 (31, 15) scales of 0.01 * 63, or 32 of 0.01 * 128, and a minimum of 0.05 * 63.
        const float tolerance = exact ? 0 : 0x1p-11F * (0.01F * 63 * 63 + 0.05F * 63);
        for (std::size_t c = 0; c < found.size(); ++c) ASSERT_NEAR(found[c], expected[c], tolerance) << info.name << " " << c;
      }
    }
    ASSERT_EQ(row, matrix.rows);
  }
}

// Given some of the columns; expects these columns' numbers of the whole rows.
TEST(BlockMatrix, MayHaveSomeColumns) {
  Rng rng(2, "columns of block matrices");
  for (const GgmlType type : kBlockTypes) {
    const std::int64_t columns = 768, first = 96, count = 352, rows = 19;
    const std::vector<std::byte> bytes = random_blocks(rng, type, rows * columns);
    const BlockMatrix whole = testing::block_matrix(std::span(&type, 1), std::span(&bytes, 1), columns);
    BlockMatrix part = BlockMatrix::with_room(coding_of(type), rows, count);
    std::vector<float> of_whole(static_cast<std::size_t>(columns)), of_part(static_cast<std::size_t>(count));
    for (std::int64_t row = 0; row < rows; ++row) {
      ASSERT_TRUE(append_row(part, info_of(type), bytes, row * columns + first));
      floats_of_row(whole, row, of_whole.data());
      floats_of_row(part, row, of_part.data());
      ASSERT_TRUE(std::equal(of_part.begin(), of_part.end(), of_whole.begin() + first)) << info_of(type).name << " " << row;
    }
  }
}

// Given a scale or a minimum that is not finite, or whose product is not finite in F16; expects the row to be refused.
TEST(BlockMatrix, RefusesWhatIsNotFinite) {
  const auto taken = [](GgmlType type, std::size_t at, std::uint16_t half) {
    const GgmlTypeInfo& info = info_of(type);
    std::vector<std::byte> bytes(static_cast<std::size_t>(256 / info.block_numbers * info.block_bytes), std::byte{1});
    std::memcpy(bytes.data() + at, &half, sizeof(half));
    BlockMatrix matrix = BlockMatrix::with_room(coding_of(type), 1, 256);
    return append_row(matrix, info, bytes, 0);
  };
  for (const GgmlType type : kBlockTypes) {
    const std::size_t scale = type == GgmlType::kQ6K ? 208 : 0;
    EXPECT_TRUE(taken(type, scale, 0x3C00)) << info_of(type).name;
    EXPECT_FALSE(taken(type, scale, 0x7C00)) << info_of(type).name;
    EXPECT_FALSE(taken(type, scale, 0x7E00)) << info_of(type).name;
    EXPECT_EQ(taken(type, 2, 0xFC00), !testing::has_minima(type)) << info_of(type).name;
  }
  EXPECT_FALSE(taken(GgmlType::kQ8_0, 0, 0x7BFF)) << "times 128";
}

}  // namespace
}  // namespace windlass::worker
