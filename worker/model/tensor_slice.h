// TensorSlice: which part of every layer one of several ranks has (tensor parallelism; Shoeybi et al. 2019, Megatron-LM).
//
// Query and key/value heads and the width of the MLP, or of each expert, are cut into equal parts: the matrices that make them
// by rows, those that take them by columns, so that a layer needs two sums over the ranks. Of the vocabulary each rank has
// consecutive ids, in the embedding and the output matrix alike; these parts may differ by one. Norms, routers, learned
// positions, and the biases of what is added to the residual stream, are whole at all ranks. Plain data; pure functions.
#pragma once

#include <cstdint>

#include "planner/base/result.h"
#include "worker/model/config.h"

namespace windlass::worker {

struct TensorSlice {
  int rank = 0;
  int ranks = 1;

  // Of `count` things that are numbered from 0: this rank's are from first() to before end().
  [[nodiscard]] std::int64_t first(std::int64_t count) const { return count * rank / ranks; }
  [[nodiscard]] std::int64_t end(std::int64_t count) const { return count * (rank + 1) / ranks; }
  [[nodiscard]] std::int64_t size(std::int64_t count) const { return end(count) - first(count); }
};

// Whether a model can be cut into so many ranks. Error: kInvalidArgument naming the flag, what was found, the degrees that are
// allowed, and the field of config.json that forbids it.
[[nodiscard]] Result<void> check_tensor_parallel(const ModelConfig& config, int ranks);

// The model as one rank sees it: its share of heads and of the MLPs' widths, all else as it is.
// REQUIRES: check_tensor_parallel().
[[nodiscard]] ModelConfig config_of_rank(const ModelConfig& config, int ranks);

}  // namespace windlass::worker
