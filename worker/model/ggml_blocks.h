// Converts numbers as stored in files to floats: F32, F16 and BF16, or the quantised blocks of GGUF, each with scales of its
// own (ggml's quants.c).
//
// A block of the legacy types has 32 numbers d * (q - offset), or d * q + m if the name ends in _1, with d and m in F16. A
// block of the K types has 256 numbers in groups of 32 or 16; a group's low-bit scale is multiplied by the block's.
// CodedBlock holds a block of any of these types. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "planner/base/gguf.h"

namespace windlass::worker {

[[nodiscard]] const GgmlTypeInfo& info_of(GgmlType type);

// How a type's blocks are coded: bits per code (4 or 8; 5- and 6-bit codes are stored in 8) and codes per scale.
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
// REQUIRES: coding_of(type) has bits, and `block` holds the bytes of one block.
void code_block(GgmlType type, const std::byte* block, CodedBlock& to);

// Numbers `first`, first + 1, ... of a tensor's bytes, as many as `out` holds. REQUIRES: the tensor has them.
void floats_of_blocks(const GgmlTypeInfo& numbers, std::span<const std::byte> bytes, std::int64_t first, std::span<float> out);

// The numbers of one block. REQUIRES: `block` and `out` have the size of the type's block.
void floats_of_block(GgmlType type, const std::byte* block, float* out);

[[nodiscard]] float float_from_f16(std::uint16_t bits);
// Rounds to nearest, ties to even; overflows to infinity.
[[nodiscard]] std::uint16_t f16_from_float(float value);
[[nodiscard]] float float_from_bf16(std::uint16_t bits);
// Rounds to nearest, ties to even.
[[nodiscard]] std::uint16_t bf16_from_float(float value);

}  // namespace windlass::worker
