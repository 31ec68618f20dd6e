// Packs and unpacks quantised blocks; see block_matrix.h.
#include "worker/model/block_matrix.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "worker/model/large_memory.h"

namespace windlass::worker {
namespace {

constexpr std::size_t kMinima =
    BlockMatrix::kTileRows * sizeof(std::uint16_t);  // offset of the minima in a line, after the scales

std::uint16_t load_half(const BlockMatrix::Line& line, std::size_t at) {
  std::uint16_t half = 0;
  std::memcpy(&half, line.bytes + at, sizeof(half));
  return half;
}

bool finite_as_f16(float value) { return (f16_from_float(value) & 0x7C00U) != 0x7C00U; }

// Position of the code of a row and column among a tile's lines of codes.
struct CodePlace {
  std::int64_t line;
  std::size_t byte;
  int shift;
};
CodePlace place_of_code(GgmlCoding coding, std::int64_t row, std::int64_t column) {
  const std::int64_t quad = column / 4;
  const std::int64_t line = quad % coding.bits;  // a group has as many lines as bits
  return {line, static_cast<std::size_t>(4 * row + column % 4), quad >= coding.bits ? 4 : 0};
}

}  // namespace

BlockMatrix BlockMatrix::with_room(GgmlCoding coding, std::int64_t rows, std::int64_t columns) {
  assert(columns % kTileColumns == 0);
  BlockMatrix matrix;
  matrix.coding = coding;
  matrix.columns = columns;
  reserve_large(matrix.lines, static_cast<std::size_t>(bytes(coding, rows, columns)) / sizeof(Line));
  return matrix;
}

std::int64_t BlockMatrix::bytes(GgmlCoding coding, std::int64_t rows, std::int64_t columns) {
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows * (columns / kTileColumns);
  return tiles * lines_of_tile(coding) * static_cast<std::int64_t>(sizeof(Line));
}

bool BlockMatrix::operator==(const BlockMatrix& other) const {
  return coding.bits == other.coding.bits && coding.group == other.coding.group && rows == other.rows &&
         columns == other.columns && lines == other.lines;
}

GgmlCoding common_coding(GgmlCoding one, GgmlCoding other) {
  return {std::max(one.bits, other.bits), std::min(one.group, other.group)};
}

bool append_row(BlockMatrix& to, const GgmlTypeInfo& numbers, std::span<const std::byte> bytes, std::int64_t first) {
  const GgmlCoding of_file = coding_of(numbers.type);
  assert(first % BlockMatrix::kTileColumns == 0 && common_coding(to.coding, of_file).bits == to.coding.bits &&
         common_coding(to.coding, of_file).group == to.coding.group);
  const std::int64_t lines_of_tile = BlockMatrix::lines_of_tile(to.coding), groups = BlockMatrix::groups_of_tile(to.coding);
  const std::int64_t lines_of_row = to.tiles_of_row() * lines_of_tile, row = to.rows % BlockMatrix::kTileRows;
  if (row == 0) to.lines.resize(to.lines.size() + static_cast<std::size_t>(lines_of_row));
  BlockMatrix::Line* tile = to.lines.data() + to.rows / BlockMatrix::kTileRows * lines_of_row;
  CodedBlock coded;
  std::int64_t block = -1;
  for (std::int64_t begin = 0; begin < to.columns; begin += BlockMatrix::kTileColumns, tile += lines_of_tile) {
    if (const std::int64_t next = (first + begin) / numbers.block_numbers; next != block) {
      block = next;
      code_block(numbers.type, bytes.data() + block * numbers.block_bytes, coded);
    }
    const std::int64_t in_block = (first + begin) % numbers.block_numbers;
    for (std::int64_t group = 0; group < groups; ++group) {
      const auto from = static_cast<std::size_t>((in_block + group * to.coding.group) / of_file.group);
      if (!finite_as_f16(coded.scales[from]) || !finite_as_f16(coded.minima[from])) return false;
      const std::uint16_t halves[] = {f16_from_float(coded.scales[from]), f16_from_float(coded.minima[from])};
      std::uint8_t* const at = tile[group].bytes + static_cast<std::size_t>(row) * sizeof(std::uint16_t);
      std::memcpy(at, &halves[0], sizeof(halves[0]));
      std::memcpy(at + kMinima, &halves[1], sizeof(halves[1]));
    }
    for (std::int64_t column = 0; column < BlockMatrix::kTileColumns; ++column) {
      const CodePlace place = place_of_code(to.coding, row, column);
      tile[groups + place.line].bytes[place.byte] |=
          static_cast<std::uint8_t>(coded.codes[static_cast<std::size_t>(in_block + column)] << place.shift);
    }
  }
  ++to.rows;
  return true;
}

void floats_of_row(const BlockMatrix& matrix, std::int64_t row, float* to) {
  const std::int64_t lines_of_tile = BlockMatrix::lines_of_tile(matrix.coding);
  const std::int64_t groups = BlockMatrix::groups_of_tile(matrix.coding);
  const BlockMatrix::Line* tile = matrix.lines.data() + row / BlockMatrix::kTileRows * matrix.tiles_of_row() * lines_of_tile;
  row %= BlockMatrix::kTileRows;
  const int mask = matrix.coding.bits == 4 ? 0xF : 0xFF;
  for (std::int64_t begin = 0; begin < matrix.columns; begin += BlockMatrix::kTileColumns, tile += lines_of_tile) {
    for (std::int64_t column = 0; column < BlockMatrix::kTileColumns; ++column) {
      const BlockMatrix::Line& scales = tile[column / matrix.coding.group];
      const auto at = static_cast<std::size_t>(row) * sizeof(std::uint16_t);
      const CodePlace place = place_of_code(matrix.coding, row, column);
      const int code = (tile[groups + place.line].bytes[place.byte] >> place.shift) & mask;
      *to++ =
          float_from_f16(load_half(scales, at)) * static_cast<float>(code) + float_from_f16(load_half(scales, at + kMinima));
    }
  }
}

}  // namespace windlass::worker
