// BlockMatrix: a matrix of a GGUF file's quantised blocks, with the file's codes of four or eight bits.
//
// Sixteen rows lie together, so that a product has a row in each lane of a vector: of 32 columns first what scales them, then
// the codes, four columns of all rows after the other. Codes of five and six bits take eight. Scales and minima are F16; those
// of the K kinds, which are products of two numbers there, are rounded to it. Plain data; any thread.
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
  // A processor's cache line, where each tile begins and ends.
  struct alignas(64) Line {
    std::uint8_t bytes[64];
    bool operator==(const Line&) const = default;
  };

  GgmlCoding coding;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // (tiles of rows, tiles of columns, lines_of_tile()). A tile is, for each of its groups, 16 scales and 16 minima, then codes:
  // of eight bits, columns 4 k to 4 k + 3 of each row in line k; of four, these below and columns 16 more above. What is
  // behind the last row is zeros.
  std::vector<Line> lines;

  // With room for so many rows, and none of them. REQUIRES: the coding has bits, and rows are whole tiles.
  [[nodiscard]] static BlockMatrix with_room(GgmlCoding coding, std::int64_t rows, std::int64_t columns);
  [[nodiscard]] static std::int64_t bytes(GgmlCoding coding, std::int64_t rows, std::int64_t columns);

  [[nodiscard]] std::int64_t tiles_of_row() const { return columns / kTileColumns; }
  [[nodiscard]] static std::int64_t groups_of_tile(GgmlCoding coding) { return kTileColumns / coding.group; }
  [[nodiscard]] static std::int64_t lines_of_tile(GgmlCoding coding) { return groups_of_tile(coding) + coding.bits; }
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(lines.size() * sizeof(Line)); }
  bool operator==(const BlockMatrix& other) const;
};

// A coding that has all codes and scales of both.
[[nodiscard]] GgmlCoding common_coding(GgmlCoding one, GgmlCoding other);

// Adds the next row: numbers `first` to before first + to.columns of a tensor's bytes. False where a scale or minimum is not
// finite in F16: then the matrix is of no use. REQUIRES: its coding has all of the type's, and `first` is a multiple of
// kTileColumns.
[[nodiscard]] bool append_row(BlockMatrix& to, const GgmlTypeInfo& numbers, std::span<const std::byte> bytes,
                              std::int64_t first);

// The numbers of a row that codes, scales and minima stand for. REQUIRES: `to` holds the columns.
void floats_of_row(const BlockMatrix& matrix, std::int64_t row, float* to);

}  // namespace windlass::worker
