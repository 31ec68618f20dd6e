// RankKv: the keys and values of all heads, of a model whose heads are cut among ranks: rank 0 reads and writes them whole.
//
// Where ranks compute on the CPU their caches lie in the group's memory, and rank 0 copies alone. Where each has a device of
// its own, rank 0 gives the others errands: they copy their heads between their devices and their part of the group's memory,
// on threads of their own. Any thread, as Backend::read_kv() and write_kv() say. After a rank is lost nothing is copied; the
// next forward() says so.
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

// REQUIRES here and below: what is given outlives what is made.
[[nodiscard]] std::unique_ptr<RankKv> shared_rank_kv(const ModelConfig& config, const CpuBackendOptions& options);

// `own`: rank 0's part. lost: called when a rank is lost, on the thread that copies; what is copied then says nothing. May be
// empty. When it is destroyed serve_rank_kv() ends at the others.
[[nodiscard]] std::unique_ptr<RankKv> device_rank_kv(const ModelConfig& config, RankGroup& group, Backend& own,
                                                     std::function<void(const Error&)> lost);

// Another rank: copies what rank 0 says until that ends it. Error: kUnavailable when a rank is lost.
[[nodiscard]] Result<void> serve_rank_kv(RankGroup& group, Backend& own);

// Adds to `sizes` what errands need. `config` is the whole model's.
[[nodiscard]] RankGroupSizes with_rank_kv(RankGroupSizes sizes, const ModelConfig& config);

}  // namespace windlass::worker
