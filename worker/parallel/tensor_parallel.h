// Tensor parallelism: a model that several ranks compute together, each with its slice of every layer (model/tensor_slice.h).
//
// Rank 0 is a Backend like any other, whose forward() tells the other ranks of the batch and computes its part; they do the
// same in serve_tensor_rank(), or serve_device_rank() where each has a device of its own. Rank 0 reads and writes whole keys
// and values while the others compute (rank_kv.h). Keys and values that pass between workers are therefore whole, whatever
// their degrees.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/memory_need.h"
#include "worker/collective/rank_group.h"

namespace windlass::worker {

// What the ranks share, the message included. REQUIRES: as rank_group_sizes().
[[nodiscard]] RankGroupSizes tensor_parallel_sizes(const ModelConfig& config, const CpuBackendOptions& options, int ranks);
[[nodiscard]] RankGroupSizes tensor_parallel_sizes(const ModelConfig& config, const cuda::CudaBackendOptions& options,
                                                   int ranks);

// The whole model's backend, at rank 0. `own`: rank 0's part, of the same config and options, with options.group.
// lost: called, on the thread of forward(), when a rank is lost, before that returns the error.
// When it is destroyed the other ranks end. REQUIRES: options.group outlives it.
[[nodiscard]] std::unique_ptr<Backend> make_tensor_parallel_backend(const ModelConfig& config, const CpuBackendOptions& options,
                                                                    std::unique_ptr<Backend> own,
                                                                    std::function<void(const Error&)> lost);
// The same of ranks with a device each. `own` says itself when one is lost in a forward(); `lost` is told of one that is lost
// while keys and values are copied, on the thread that copies.
[[nodiscard]] std::unique_ptr<Backend> make_tensor_parallel_backend(const ModelConfig& config, RankGroup& group,
                                                                    std::unique_ptr<Backend> own,
                                                                    std::function<void(const Error&)> lost);

// Another rank: computes what rank 0 says until that ends it. Error: kUnavailable when a rank is lost.
// `own`: its part, made with the same config and options and this group.
[[nodiscard]] Result<void> serve_tensor_rank(RankGroup& group, Backend& own);
// The same with a device of its own; copies keys and values on another thread meanwhile. After an error the group has failed.
[[nodiscard]] Result<void> serve_device_rank(RankGroup& group, Backend& own);

// What ranks agree upon before the first batch; all call these together. Error: kUnavailable when one is lost.
// Rank 0's bytes, at every rank. REQUIRES: at most kMaxTold, and as many at every rank.
inline constexpr std::size_t kMaxTold = 256;
[[nodiscard]] Result<std::vector<std::byte>> told_by_rank_0(RankGroup& group, std::span<const std::byte> own);
// The least of the numbers that they give.
[[nodiscard]] Result<std::int64_t> least_of_ranks(RankGroup& group, std::int64_t own);

// Every rank calls it once its part of the model is loaded; it waits for the others. `fingerprint`: of the model's weights.
// Error: kFailedPrecondition where another rank has other weights; kUnavailable when one is lost.
[[nodiscard]] Result<void> meet_loaded(RankGroup& group, std::uint64_t fingerprint);

}  // namespace windlass::worker
