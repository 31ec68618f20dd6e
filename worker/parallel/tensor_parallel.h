// Tensor parallelism: several ranks compute one model, each with its slice of every layer (model/tensor_slice.h).
//
// Rank 0 is a normal Backend; its forward() sends the batch to the other ranks and computes its own part. The others run
// serve_tensor_rank(), or serve_device_rank() if each has a device of its own. Rank 0 reads and writes keys and values of all
// heads, also while the others compute (rank_kv.h), so transfers between workers do not depend on their degrees of parallelism.
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

// Sizes of the ranks' shared memory, including the message. REQUIRES: as rank_group_sizes().
[[nodiscard]] RankGroupSizes tensor_parallel_sizes(const ModelConfig& config, const CpuBackendOptions& options, int ranks);
[[nodiscard]] RankGroupSizes tensor_parallel_sizes(const ModelConfig& config, const cuda::CudaBackendOptions& options,
                                                   int ranks);

// The backend of the whole model, at rank 0. `own`: rank 0's part, made with the same config and options, including
// options.group. `lost`: called on the thread of forward() when a rank is lost, before that returns the error. Destroying the
// backend ends the other ranks. REQUIRES: options.group outlives it.
[[nodiscard]] std::unique_ptr<Backend> make_tensor_parallel_backend(const ModelConfig& config, const CpuBackendOptions& options,
                                                                    std::unique_ptr<Backend> own,
                                                                    std::function<void(const Error&)> lost);
// Like the above, for ranks with one device each. `own` itself reports a rank lost during forward(); `lost` is called when a
// rank is lost while keys and values are copied, on the copying thread.
[[nodiscard]] std::unique_ptr<Backend> make_tensor_parallel_backend(const ModelConfig& config, RankGroup& group,
                                                                    std::unique_ptr<Backend> own,
                                                                    std::function<void(const Error&)> lost);

// For the other ranks: computes what rank 0 sends until told to stop. `own`: this rank's part, made with the same config,
// options and group. Error: kUnavailable if a rank is lost.
[[nodiscard]] Result<void> serve_tensor_rank(RankGroup& group, Backend& own);
// Like the above, with a device of its own; another thread copies keys and values meanwhile. After an error the group has
// failed.
[[nodiscard]] Result<void> serve_device_rank(RankGroup& group, Backend& own);

// Agreements of the ranks before the first batch; all ranks call each function together. Error: kUnavailable if a rank is lost.
// told_by_rank_0(): every rank gets rank 0's bytes. REQUIRES: at most kMaxTold bytes, the same number at every rank.
inline constexpr std::size_t kMaxTold = 256;
[[nodiscard]] Result<std::vector<std::byte>> told_by_rank_0(RankGroup& group, std::span<const std::byte> own);
// The smallest of the ranks' numbers.
[[nodiscard]] Result<std::int64_t> least_of_ranks(RankGroup& group, std::int64_t own);

// Waits until every rank has loaded its part. `fingerprint`: of the model's weights. Error: kFailedPrecondition if another rank
// has other weights; kUnavailable if one is lost.
[[nodiscard]] Result<void> meet_loaded(RankGroup& group, std::uint64_t fingerprint);

}  // namespace windlass::worker
