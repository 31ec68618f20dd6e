// Products with a model's matrices, on all threads of a team.
//
// For up to kFewTokens tokens, each number of the matrix is read from memory once, row by row, and multiplied with all tokens,
// because reading dominates the cost of decoding. A general product first copies the matrix into another layout, which pays
// only for more tokens; those use OpenBLAS, with the process's number of BLAS threads. 8-bit matrices are converted to FP32 a
// few hundred numbers at a time, so that only 8 bits per number are read from memory.
//
// Quantised blocks are multiplied as integers, for any number of tokens (block_product.h).
//
// With the same format and kernel, a token's result has the same bits whatever the other tokens, their number and the number
// of threads are. This holds for up to kFewTokens tokens, and with blocks for any number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/backend/cpu/block_product.h"
#include "worker/backend/cpu/thread_team.h"
#include "worker/model/weight_matrix.h"

namespace windlass::worker::cpu {

constexpr std::int64_t kFewTokens = 128;

// An implementation of the product with few tokens, for one vector set.
struct FewTokensKernel;
// Those that this processor supports, best first; "any" always works.
[[nodiscard]] std::span<const FewTokensKernel* const> few_tokens_kernels();
[[nodiscard]] const char* name_of(const FewTokensKernel& kernel);

class MatrixProduct {
 public:
  explicit MatrixProduct(ThreadTeam& team, const FewTokensKernel& kernel = *few_tokens_kernels().front())
      : team_(&team), kernel_(&kernel) {}

  // y (T, out) = x (T, in) * w (out, in)^T, or y += that. Keeps its buffers, so that a step allocates nothing once they have
  // grown. One call at a time.
  void multiply(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out,
                bool accumulate = false);
  void multiply(const float* x, const WeightMatrix& w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out,
                bool accumulate = false);

 private:
  // Pass either `values` or `codes`.
  void few_tokens(const float* x, const float* values, const WeightMatrix* codes, float* y, std::int64_t tokens,
                  std::int64_t in, std::int64_t out, bool accumulate);

  void blocks(const float* x, const BlockMatrix& w, float* y, std::int64_t tokens, bool accumulate);

  ThreadTeam* team_;
  const FewTokensKernel* kernel_;
  std::vector<float> x_;            // in the kernel's order
  std::vector<float> dequantised_;  // rows for OpenBLAS
  CodedTokens coded_;
};

// Sets the number of OpenBLAS's threads, for the whole process.
void set_blas_threads(int threads);

}  // namespace windlass::worker::cpu
