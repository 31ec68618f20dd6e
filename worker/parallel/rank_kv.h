// RankKv: lets rank 0 read and write the keys and values of all heads when ranks share the heads of a model.
//
// On the CPU, the ranks' caches are in the group's memory, and rank 0 copies alone. With one device per rank, rank 0 sends
// errands to the others, which copy their heads between their device and their part of the group's memory, on threads of their
// own. Any thread, as for Backend::read_kv() and write_kv(). After a rank is lost nothing is copied; the next forward() reports
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/collective/rank_group.h"
#include "worker/model/config.h"

namespace windlass::worker {

class RankKv {
 public:
  virtual ~RankKv() = default;
  virtual void read(const KvRange& range, std::span<const std::int32_t> blocks, float* out) = 0;
  virtual void write(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) = 0;
};

// REQUIRES, here and below: the arguments outlive the result.
[[nodiscard]] std::unique_ptr<RankKv> shared_rank_kv(const ModelConfig& config, const CpuBackendOptions& options);

// `own`: rank 0's part. `lost`: called on the copying thread when a rank is lost, which makes the copied data invalid; may be
// empty. Destroying the result ends serve_rank_kv() at the other ranks.
[[nodiscard]] std::unique_ptr<RankKv> device_rank_kv(const ModelConfig& config, RankGroup& group, Backend& own,
                                                     std::function<void(const Error&)> lost);

// For the other ranks: carries out rank 0's errands until told to stop. Error: kUnavailable if a rank is lost.
[[nodiscard]] Result<void> serve_rank_kv(RankGroup& group, Backend& own);

// Adds the size of errands to `sizes`. `config`: of the whole model.
[[nodiscard]] RankGroupSizes with_rank_kv(RankGroupSizes sizes, const ModelConfig& config);

}  // namespace windlass::worker
