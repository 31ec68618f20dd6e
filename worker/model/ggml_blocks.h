// Numbers as files have them, as floats: one by one in F32, F16 or BF16, or in GGUF's blocks (ggml's quants.c), of which each
// has scales of its own.
//
// A block of the legacy kinds has 32 numbers d * (q - offset), d * q + m where the name ends in _1, with d and m in F16. One of
// the K kinds has 256 in groups of 32 or 16 with scales of few bits, times the block's. All of them are coded in one way here.
// Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "planner/base/gguf.h"

namespace windlass::worker {

[[nodiscard]] const GgmlTypeInfo& info_of(GgmlType type);

// How a type's blocks are coded: bits of a code (4 or 8: those of 5 and 6 are held in 8), and codes with one scale.
struct GgmlCoding {
  int bits = 0;  // 0: the type has plain numbers
  int group = 0;
};
[[nodiscard]] GgmlCoding coding_of(GgmlType type);

constexpr int kMaxNumbersOfBlock = 256;
constexpr int kLeastGroup = 16;

// Number i of a block is scales[i / group] * codes[i] + minima[i / group].
struct CodedBlock {
  std::array<std::uint8_t, kMaxNumbersOfBlock> codes;
  std::array<float, kMaxNumbersOfBlock / kLeastGroup> scales, minima;
};
// REQUIRES: coding_of(type) has bits, and `block` the bytes of one block.
void code_block(GgmlType type, const std::byte* block, CodedBlock& to);

// Numbers `first`, first + 1, ... of a tensor's bytes, as many as `out` holds. REQUIRES: it has them.
void floats_of_blocks(const GgmlTypeInfo& numbers, std::span<const std::byte> bytes, std::int64_t first, std::span<float> out);

// The numbers of one block. REQUIRES: as many bytes and floats as the type's block has.
void floats_of_block(GgmlType type, const std::byte* block, float* out);

[[nodiscard]] float float_from_f16(std::uint16_t bits);
// Round to nearest, ties to even; above the largest, infinite.
[[nodiscard]] std::uint16_t f16_from_float(float value);
[[nodiscard]] float float_from_bf16(std::uint16_t bits);
// Round to nearest, ties to even.
[[nodiscard]] std::uint16_t bf16_from_float(float value);

}  // namespace windlass::worker
