// Numbers as files have them, as floats: one by one in F32, F16 or BF16, or in GGUF's blocks (ggml's quants.c), of which each
// has scales of its own.
//
// A block of the legacy kinds has 32 numbers d * q, d * q + m where the name ends in _1, with d and m in F16. One of the K
// kinds has 256 in parts of 32 or 16 with scales of few bits, times the block's. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "planner/base/gguf.h"

namespace windlass::worker {

[[nodiscard]] const GgmlTypeInfo& info_of(GgmlType type);

// Numbers `first`, first + 1, ... of a tensor's bytes, as many as `out` holds. REQUIRES: it has them.
void floats_of_blocks(const GgmlTypeInfo& numbers, std::span<const std::byte> bytes, std::int64_t first, std::span<float> out);

// The numbers of one block. REQUIRES: as many bytes and floats as the type's block has.
void floats_of_block(GgmlType type, const std::byte* block, float* out);

[[nodiscard]] float float_from_f16(std::uint16_t bits);
[[nodiscard]] float float_from_bf16(std::uint16_t bits);
// Round to nearest, ties to even.
[[nodiscard]] std::uint16_t bf16_from_float(float value);

}  // namespace windlass::worker
