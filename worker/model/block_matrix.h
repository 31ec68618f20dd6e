// BlockMatrix: a matrix of a GGUF file's quantised blocks, rearranged for fast products, with the file's 4- or 8-bit codes.
//
// 16 rows are interleaved, so that a product has one row per vector lane. Per 32 columns come first the scales, then the codes,
// four columns of all rows at a time. 5- and 6-bit codes are stored in 8 bits. Scales and minima are F16; those of the K types
// are products of two numbers in the file and are rounded to F16. Plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/ggml_blocks.h"

namespace windlass::worker {

struct BlockMatrix {
  static constexpr std::int64_t kTileRows = 16;
  static constexpr std::int64_t kTileColumns = 32;
  // A processor's cache line; each tile starts and ends on one.
  struct alignas(64) Line {
    std::uint8_t bytes[64];
    bool operator==(const Line&) const = default;
  };

  GgmlCoding coding;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // (tiles of rows, tiles of columns, lines_of_tile()). Per group, a tile has 16 scales and 16 minima, then codes. 8-bit codes:
  // line k has columns 4 k to 4 k + 3 of each row. 4-bit codes: those in the low halves, and columns 16 further in the high
  // halves. Rows past the last are zero.
  std::vector<Line> lines;

  // An empty matrix with capacity for this many rows. REQUIRES: the coding has bits, and rows are whole tiles.
  [[nodiscard]] static BlockMatrix with_room(GgmlCoding coding, std::int64_t rows, std::int64_t columns);
  [[nodiscard]] static std::int64_t bytes(GgmlCoding coding, std::int64_t rows, std::int64_t columns);

  [[nodiscard]] std::int64_t tiles_of_row() const { return columns / kTileColumns; }
  [[nodiscard]] static std::int64_t groups_of_tile(GgmlCoding coding) { return kTileColumns / coding.group; }
  [[nodiscard]] static std::int64_t lines_of_tile(GgmlCoding coding) { return groups_of_tile(coding) + coding.bits; }
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(lines.size() * sizeof(Line)); }
  bool operator==(const BlockMatrix& other) const;
};

// The coding that can hold the codes and scales of both.
[[nodiscard]] GgmlCoding common_coding(GgmlCoding one, GgmlCoding other);

// Appends a row: numbers `first` to first + to.columns - 1 of a tensor's bytes. Returns false if a scale or minimum is not
// finite in F16; the matrix is then unusable. REQUIRES: the coding can hold that of the type, and `first` is a multiple of
// kTileColumns.
[[nodiscard]] bool append_row(BlockMatrix& to, const GgmlTypeInfo& numbers, std::span<const std::byte> bytes,
                              std::int64_t first);

// Decodes a row into floats. REQUIRES: `to` has room for the columns.
void floats_of_row(const BlockMatrix& matrix, std::int64_t row, float* to);

}  // namespace windlass::worker
