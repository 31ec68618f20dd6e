// An errand is one piece of a range, with the few cache blocks it covers, so that all errands have the same size. The data is
// in each rank's own floats.
#include "worker/parallel/rank_kv.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "worker/model/tensor_slice.h"

namespace windlass::worker {
namespace {

constexpr std::int64_t kPieceTokens = 256;

struct KvErrand {
  enum class Kind : std::int64_t { kEnd, kRead, kWrite };
  Kind kind = Kind::kEnd;
  KvRange range;
  std::int32_t blocks[kPieceTokens / kKvBlockTokens + 1] = {};  // the range begins in the first
};

// Offset of a rank's heads among all, in numbers of a position's keys, or of its values.
std::int64_t kv_begin(std::int64_t kv_size, int rank, int ranks) { return TensorSlice{rank, ranks}.first(kv_size); }

class SharedRankKv final : public RankKv {
 public:
  SharedRankKv(const ModelConfig& config, const CpuBackendOptions& options) : kv_size_(config.kv_size()) {
    for (int rank = 0; rank < options.group->ranks(); ++rank)
      caches_.push_back(kv_cache_of_rank(config, options, *options.group, rank));
  }

  void read(const KvRange& range, std::span<const std::int32_t> blocks, float* out) override {
    for (std::size_t rank = 0; rank < caches_.size(); ++rank) {
      float* to = out + begin(rank);
      caches_[rank].read(range, blocks, to, to + kv_size_, 2 * kv_size_);
    }
  }
  void write(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    for (std::size_t rank = 0; rank < caches_.size(); ++rank) {
      const float* from = in + begin(rank);
      caches_[rank].write(range, blocks, from, from + kv_size_, 2 * kv_size_);
    }
  }

 private:
  [[nodiscard]] std::int64_t begin(std::size_t rank) const {
    return kv_begin(kv_size_, static_cast<int>(rank), static_cast<int>(caches_.size()));
  }

  const std::int64_t kv_size_;
  std::vector<cpu::KvCache> caches_;  // by rank
};

// Carries out an errand with this rank's cache and memory.
void run_errand(const KvErrand& errand, RankGroup& group, Backend& own) {
  float* const values = group.own(group.rank()).data();
  if (errand.kind == KvErrand::Kind::kRead) own.read_kv(errand.range, errand.blocks, values);
  if (errand.kind == KvErrand::Kind::kWrite) own.write_kv(errand.range, errand.blocks, values);
}

class DeviceRankKv final : public RankKv {
 public:
  DeviceRankKv(const ModelConfig& config, RankGroup& group, Backend& own, std::function<void(const Error&)> lost)
      : kv_size_(config.kv_size()), part_(kv_size_ / group.ranks()), group_(group), own_(own), lost_(std::move(lost)) {
    assert(group.rank() == 0);
  }
  ~DeviceRankKv() override { give({}); }
  DeviceRankKv(const DeviceRankKv&) = delete;
  DeviceRankKv& operator=(const DeviceRankKv&) = delete;

  void read(const KvRange& range, std::span<const std::int32_t> blocks, float* out) override {
    const std::scoped_lock lock(mutex_);
    for (std::int64_t first = 0; first < range.tokens; first += kPieceTokens) {
      const KvErrand errand = errand_of(KvErrand::Kind::kRead, range, blocks, first);
      if (!run(errand)) return;
      each_row(errand.range.tokens, [&](const float* part, std::int64_t row, std::int64_t column) {
        std::copy_n(part, part_, out + (first + row) * 2 * kv_size_ + column);
      });
    }
  }
  void write(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    const std::scoped_lock lock(mutex_);
    for (std::int64_t first = 0; first < range.tokens; first += kPieceTokens) {
      const KvErrand errand = errand_of(KvErrand::Kind::kWrite, range, blocks, first);
      each_row(errand.range.tokens, [&](float* part, std::int64_t row, std::int64_t column) {
        std::copy_n(in + (first + row) * 2 * kv_size_ + column, part_, part);
      });
      if (!run(errand)) return;
    }
  }

 private:
  [[nodiscard]] static KvErrand errand_of(KvErrand::Kind kind, const KvRange& range, std::span<const std::int32_t> blocks,
                                          std::int64_t first) {
    KvErrand errand;
    errand.kind = kind;
    const std::int64_t start = range.start + first;
    const std::int64_t block = start / kKvBlockTokens;
    errand.range = {range.layer, start - block * kKvBlockTokens, std::min(kPieceTokens, range.tokens - first)};
    std::copy_n(blocks.begin() + block, blocks_for(errand.range.start + errand.range.tokens), errand.blocks);
    return errand;
  }

  void give(const KvErrand& errand) {
    std::memcpy(group_.errand().data(), &errand, sizeof(errand));
    group_.give_errand();
  }
  // Runs it on all ranks. Returns false if one is lost.
  [[nodiscard]] bool run(const KvErrand& errand) {
    give(errand);
    run_errand(errand, group_, own_);
    const auto done = group_.wait_for_errand();
    if (!done.ok() && lost_) lost_(done.error());
    return done.ok();
  }

  // Calls copy(a rank's keys or values of a position, the position, their place among those of all heads).
  template <typename Copy>
  void each_row(std::int64_t tokens, const Copy& copy) const {
    for (int rank = 0; rank < group_.ranks(); ++rank) {
      float* part = group_.own(rank).data();
      const std::int64_t begin = kv_begin(kv_size_, rank, group_.ranks());
      for (std::int64_t row = 0; row < tokens; ++row) {
        for (const std::int64_t column : {begin, kv_size_ + begin}) {
          copy(part, row, column);
          part += part_;
        }
      }
    }
  }

  const std::int64_t kv_size_;
  const std::int64_t part_;  // size at each rank
  std::mutex mutex_;         // protects errands
  RankGroup& group_;
  Backend& own_;
  const std::function<void(const Error&)> lost_;
};

}  // namespace

std::unique_ptr<RankKv> shared_rank_kv(const ModelConfig& config, const CpuBackendOptions& options) {
  return std::make_unique<SharedRankKv>(config, options);
}

std::unique_ptr<RankKv> device_rank_kv(const ModelConfig& config, RankGroup& group, Backend& own,
                                       std::function<void(const Error&)> lost) {
  return std::make_unique<DeviceRankKv>(config, group, own, std::move(lost));
}

Result<void> serve_rank_kv(RankGroup& group, Backend& own) {
  assert(group.rank() > 0);
  for (;;) {
    WINDLASS_RETURN_IF_ERROR(group.take_errand());
    KvErrand errand;
    std::memcpy(&errand, group.errand().data(), sizeof(errand));
    if (errand.kind == KvErrand::Kind::kEnd) return {};
    run_errand(errand, group, own);
    group.errand_done();
  }
}

RankGroupSizes with_rank_kv(RankGroupSizes sizes, const ModelConfig& config) {
  sizes.errand_bytes = sizeof(KvErrand);
  sizes.own_floats = kPieceTokens * 2 * config.kv_size() / sizes.ranks;
  return sizes;
}

}  // namespace windlass::worker
