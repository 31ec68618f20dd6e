// Tensor parallelism: a model that several ranks compute together, each with its slice of every layer (model/tensor_slice.h).
//
// Rank 0 is a Backend like any other, whose forward() tells the other ranks of the batch and computes its part; they do the
// same in serve_tensor_rank(). The KV caches of all ranks lie in the group's memory, so that rank 0 reads and writes whole keys
// and values alone, while the others compute. Keys and values that pass between workers are therefore whole, whatever their
// degrees.
#pragma once

#include <functional>
#include <memory>

#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/collective/rank_group.h"

namespace windlass::worker {

// What the ranks share, the message included. REQUIRES: as rank_group_sizes().
[[nodiscard]] RankGroupSizes tensor_parallel_sizes(const ModelConfig& config, const CpuBackendOptions& options, int ranks);

// The whole model's backend, at rank 0. `own`: rank 0's part, of the same config and options, with options.group.
// lost: called, on the thread of forward(), when a rank is lost, before that returns the error.
// When it is destroyed the other ranks end. REQUIRES: options.group outlives it.
[[nodiscard]] std::unique_ptr<Backend> make_tensor_parallel_backend(const ModelConfig& config, const CpuBackendOptions& options,
                                                                    std::unique_ptr<Backend> own,
                                                                    std::function<void(const Error&)> lost);

// Another rank: computes what rank 0 says until that ends it. Error: kUnavailable when a rank is lost.
// `own`: its part, made with the same config and options and this group.
[[nodiscard]] Result<void> serve_tensor_rank(RankGroup& group, Backend& own);

// Every rank calls it once its part of the model is loaded; it waits for the others. `fingerprint`: of the model's weights.
// Error: kFailedPrecondition where another rank has other weights; kUnavailable when one is lost.
[[nodiscard]] Result<void> meet_loaded(RankGroup& group, std::uint64_t fingerprint);

}  // namespace windlass::worker
