// TensorSlice: the part of every layer that one of several ranks has (tensor parallelism; Shoeybi et al. 2019, Megatron-LM).
//
// Query heads, key/value heads and the width of the MLP (or of each expert) are split equally. Matrices that produce them are
// split by rows, matrices that consume them by columns, so a layer needs two sums over the ranks. Each rank has consecutive ids
// of the vocabulary, the same in the embedding and the output matrix; the shares may differ by one. Norms, routers, learned
// positions and biases added to the residual stream are whole on every rank. Plain data; pure functions.
#pragma once

#include <cstdint>

#include "planner/base/result.h"
#include "worker/model/config.h"

namespace windlass::worker {

struct TensorSlice {
  int rank = 0;
  int ranks = 1;

  // This rank's share of `count` items numbered from 0: first() to end() - 1.
  [[nodiscard]] std::int64_t first(std::int64_t count) const { return count * rank / ranks; }
  [[nodiscard]] std::int64_t end(std::int64_t count) const { return count * (rank + 1) / ranks; }
  [[nodiscard]] std::int64_t size(std::int64_t count) const { return end(count) - first(count); }
};

// Checks whether a model can be split into this many ranks. Error: kInvalidArgument naming the flag, the value, the allowed
// degrees and the field of config.json that forbids it.
[[nodiscard]] Result<void> check_tensor_parallel(const ModelConfig& config, int ranks);

// The model as one rank sees it: its share of heads and MLP widths, everything else unchanged. REQUIRES:
// check_tensor_parallel() succeeds.
[[nodiscard]] ModelConfig config_of_rank(const ModelConfig& config, int ranks);

}  // namespace windlass::worker
