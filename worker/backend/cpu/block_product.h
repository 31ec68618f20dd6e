// Multiplies activations with a matrix of quantised blocks (BlockMatrix), in integer arithmetic.
//
// Activations are quantised to integers from -127 to 127 with one FP32 scale per 32 of them, as in llama.cpp's Q8_1. For
// each group of columns, the product of codes is an exact integer. In FP32, it is multiplied by the scales, and the group's
// minimum times the sum of its activations is added. So with the same kernel, a result has the same bits whatever the other
// rows and tokens are.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/backend/cpu/thread_team.h"
#include "worker/backend/vectors.h"
#include "worker/model/block_matrix.h"

namespace windlass::worker::cpu {

// Activations (tokens, columns) in the form that a product reads.
struct CodedTokens {
  std::int64_t tokens = 0;
  std::int64_t tiles = 0;          // of BlockMatrix::kTileColumns columns
  std::vector<std::int8_t> codes;  // (tokens, tiles, 32)
  std::vector<float> scales;       // (tokens, tiles)
  std::vector<std::int32_t> sums;  // (tokens, tiles, 2): of the codes of each half of a tile
};

// REQUIRES: columns are whole tiles.
void code_tokens(const float* x, std::int64_t tokens, std::int64_t columns, ThreadTeam& team, CodedTokens& to);

struct BlockRows {
  const CodedTokens* x;
  const BlockMatrix* w;
  float* y;  // (tokens, rows)
  bool accumulate;
};
// Computes the rows in tiles `first` to `end` - 1.
using BlockKernel = void (*)(const BlockRows& job, std::int64_t first, std::int64_t end);

// The kernel for these vectors. A processor with AVX-512 but without VNNI gets the AVX2 kernel.
[[nodiscard]] BlockKernel block_kernel(VectorSet vectors);

}  // namespace windlass::worker::cpu
