// Products with a model's matrices, on all threads of a team.
//
// Of up to kFewTokens tokens each number of a matrix is read from memory once, row by row, and multiplied with all of them:
// what decoding costs is the reading. A general product copies the matrix into an order of its own first, which pays only for
// more tokens; those go into OpenBLAS, with the process's BLAS thread count. Matrices of eight bits become FP32 on the way, a
// few hundred numbers at a time, so that memory is read for eight bits alone.
//
// Quantised blocks are multiplied as whole numbers, for any number of tokens (block_product.h).
//
// Up to kFewTokens, in one format and by one kernel, a token's result has the same bits whatever the other tokens, their number
// and the number of threads; with blocks for any number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/backend/cpu/block_product.h"
#include "worker/backend/cpu/thread_team.h"
#include "worker/model/weight_matrix.h"

namespace windlass::worker::cpu {

constexpr std::int64_t kFewTokens = 128;

// One way to compute the product of few tokens: as this or that processor has vectors.
struct FewTokensKernel;
// Those that this processor has, the best one first; "any" is everywhere.
[[nodiscard]] std::span<const FewTokensKernel* const> few_tokens_kernels();
[[nodiscard]] const char* name_of(const FewTokensKernel& kernel);

class MatrixProduct {
 public:
  explicit MatrixProduct(ThreadTeam& team, const FewTokensKernel& kernel = *few_tokens_kernels().front())
      : team_(&team), kernel_(&kernel) {}

  // y (T, out) = x (T, in) * w (out, in)^T, or y += that. What it needs is kept, so that a step allocates nothing once that has
  // grown. One call at a time.
  void multiply(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out,
                bool accumulate = false);
  void multiply(const float* x, const WeightMatrix& w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out,
                bool accumulate = false);

 private:
  // Either `values` or `codes`.
  void few_tokens(const float* x, const float* values, const WeightMatrix* codes, float* y, std::int64_t tokens,
                  std::int64_t in, std::int64_t out, bool accumulate);

  void blocks(const float* x, const BlockMatrix& w, float* y, std::int64_t tokens, bool accumulate);

  ThreadTeam* team_;
  const FewTokensKernel* kernel_;
  std::vector<float> x_;            // in the kernel's order
  std::vector<float> dequantised_;  // rows for OpenBLAS
  CodedTokens coded_;
};

// Number of OpenBLAS's threads, for the whole process.
void set_blas_threads(int threads);

}  // namespace windlass::worker::cpu
