// Products with a matrix of quantised blocks, in whole numbers.
//
// Activations become whole numbers from -127 to 127, with one FP32 scale for 32 of them, as llama.cpp's Q8_1 has them. A
// product of codes and these is exact; it is scaled, and a group's minimum times the sum of its activations is added, in FP32,
// group after group. So a row's result, of one kernel, has the same bits whatever the other rows and tokens are.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/backend/cpu/thread_team.h"
#include "worker/backend/vectors.h"
#include "worker/model/block_matrix.h"

namespace windlass::worker::cpu {

// Activations (tokens, columns) as a product reads them.
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
// Rows of the tiles of rows from `first` to before `end`.
using BlockKernel = void (*)(const BlockRows& job, std::int64_t first, std::int64_t end);

// For a processor with these vectors; with AVX-512 but without its VNNI that of AVX2.
[[nodiscard]] BlockKernel block_kernel(VectorSet vectors);

}  // namespace windlass::worker::cpu
