// The message is a row of numbers: how many chunks and which blocks to skip, four of each chunk, then all chunks' tokens, cache
// blocks and hidden states.
#include "worker/parallel/tensor_parallel.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace windlass::worker {
namespace {

struct StepHead {
  std::int64_t chunks = 0;  // 0: the end
  std::int64_t skip = 0;
};

struct ChunkHead {
  std::int64_t tokens = 0;  // ids
  std::int64_t start = 0;
  std::int64_t blocks = 0;
  std::int64_t hidden = 0;  // floats
  std::int64_t wants_logits = 0;
};

// Writes one thing after the other, or finds that there is no room.
class MessageWriter {
 public:
  explicit MessageWriter(std::span<std::byte> to) : to_(to) {}

  template <class T>
  void put(std::span<const T> values) {
    if (values.size_bytes() > to_.size()) full_ = true;
    if (full_ || values.empty()) return;
    std::memcpy(to_.data(), values.data(), values.size_bytes());
    to_ = to_.subspan(values.size_bytes());
  }
  template <class T>
  void put_one(const T& value) {
    put(std::span<const T>(&value, 1));
  }
  [[nodiscard]] bool full() const { return full_; }

 private:
  std::span<std::byte> to_;
  bool full_ = false;
};

// REQUIRES: what is read was written.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> from) : from_(from.data()) {}

  template <class T>
  [[nodiscard]] T one() {
    T value;
    std::memcpy(&value, from_, sizeof(T));
    from_ += sizeof(T);
    return value;
  }
  template <class T>
  [[nodiscard]] std::vector<T> several(std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(values.data(), from_, values.size() * sizeof(T));
    from_ += values.size() * sizeof(T);
    return values;
  }

 private:
  const std::byte* from_;
};

class TensorParallelBackend final : public Backend {
 public:
  TensorParallelBackend(const ModelConfig& config, const CpuBackendOptions& options, std::unique_ptr<Backend> own,
                        std::function<void(const Error&)> lost)
      : vocab_size_(config.vocab_size),
        kv_size_(config.kv_size()),
        group_(*options.group),
        own_(std::move(own)),
        lost_(std::move(lost)) {
    assert(group_.rank() == 0);
    for (int rank = 0; rank < group_.ranks(); ++rank) caches_.push_back(kv_cache_of_rank(config, options, group_, rank));
  }
  ~TensorParallelBackend() override {
    MessageWriter(group_.outbox()).put_one(StepHead{});
    group_.send();
  }
  TensorParallelBackend(const TensorParallelBackend&) = delete;
  TensorParallelBackend& operator=(const TensorParallelBackend&) = delete;

  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_size_; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return own_->kv_blocks(); }
  [[nodiscard]] KvShape kv_shape() const override { return {own_->kv_shape().layers, 2 * kv_size_}; }

  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    for (std::size_t rank = 0; rank < caches_.size(); ++rank) {
      float* to = out + kv_begin(rank);
      caches_[rank].read(range, blocks, to, to + kv_size_, 2 * kv_size_);
    }
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    for (std::size_t rank = 0; rank < caches_.size(); ++rank) {
      const float* from = in + kv_begin(rank);
      caches_[rank].write(range, blocks, from, from + kv_size_, 2 * kv_size_);
    }
  }

 private:
  // Where a rank's heads begin among all.
  [[nodiscard]] std::int64_t kv_begin(std::size_t rank) const {
    return TensorSlice{static_cast<int>(rank), group_.ranks()}.first(kv_size_);
  }

  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    MessageWriter out(group_.outbox());
    out.put_one(StepHead{static_cast<std::int64_t>(chunks.size()), skip});
    for (const SequenceChunk& chunk : chunks) {
      out.put_one(ChunkHead{static_cast<std::int64_t>(chunk.tokens.size()), chunk.start,
                            static_cast<std::int64_t>(chunk.blocks.size()), static_cast<std::int64_t>(chunk.hidden.size()),
                            chunk.wants_logits ? 1 : 0});
      out.put(chunk.tokens);
      out.put(chunk.blocks);
      out.put(chunk.hidden);
    }
    if (out.full()) {
      return Error{
          ErrorCode::kInternal,
          fmt::format("forward: found a batch of more than the {} bytes that the ranks have room for", group_.outbox().size())};
    }
    group_.send();
    auto rows = own_->forward(chunks, layer_done, skip);
    if (!rows.ok() && rows.error().code == ErrorCode::kUnavailable && lost_) lost_(rows.error());
    return rows;
  }

  const std::int64_t vocab_size_;
  const std::int64_t kv_size_;
  RankGroup& group_;
  const std::unique_ptr<Backend> own_;
  const std::function<void(const Error&)> lost_;
  std::vector<cpu::KvCache> caches_;  // by rank
};

}  // namespace

RankGroupSizes tensor_parallel_sizes(const ModelConfig& config, const CpuBackendOptions& options, int ranks) {
  RankGroupSizes sizes = rank_group_sizes(config, options, ranks);
  const bool begins = !options.blocks || options.blocks->first == 0;
  // A chunk has a token at least, and the blocks of its sequence, which other chunks may have, too.
  const auto each =
      static_cast<std::int64_t>(sizeof(ChunkHead)) + (begins ? static_cast<std::int64_t>(sizeof(std::int32_t))
                                                             : config.hidden_size * static_cast<std::int64_t>(sizeof(float)));
  sizes.message_bytes =
      static_cast<std::int64_t>(sizeof(StepHead)) + options.max_batch_tokens * each +
      options.max_batch_tokens * blocks_for(options.max_context_tokens) * static_cast<std::int64_t>(sizeof(std::int32_t));
  return sizes;
}

std::unique_ptr<Backend> make_tensor_parallel_backend(const ModelConfig& config, const CpuBackendOptions& options,
                                                      std::unique_ptr<Backend> own, std::function<void(const Error&)> lost) {
  return std::make_unique<TensorParallelBackend>(config, options, std::move(own), std::move(lost));
}

Result<void> serve_tensor_rank(RankGroup& group, Backend& own) {
  struct Part {
    std::vector<std::int32_t> tokens, blocks;
    std::vector<float> hidden;
  };
  assert(group.rank() > 0);
  for (;;) {
    WINDLASS_ASSIGN_OR_RETURN(const auto message, group.receive());
    MessageReader in(message);
    const auto step = in.one<StepHead>();
    if (step.chunks == 0) return {};
    std::vector<Part> parts(static_cast<std::size_t>(step.chunks));
    std::vector<SequenceChunk> chunks;
    for (Part& part : parts) {
      const auto head = in.one<ChunkHead>();
      part.tokens = in.several<std::int32_t>(head.tokens);
      part.blocks = in.several<std::int32_t>(head.blocks);
      part.hidden = in.several<float>(head.hidden);
      chunks.push_back({part.tokens, head.start, part.blocks, head.wants_logits != 0, part.hidden, {}});
    }
    const auto rows = own.forward(chunks, nullptr, step.skip);
    // Other errors are of the batch, and those of all ranks.
    if (!rows.ok() && rows.error().code == ErrorCode::kUnavailable) return rows.error();
  }
}

Result<void> meet_loaded(RankGroup& group, std::uint64_t fingerprint) {
  group.show(fingerprint);
  WINDLASS_RETURN_IF_ERROR(group.barrier(RankGroup::kNoLimit));
  for (int rank = 0; rank < group.ranks(); ++rank) {
    if (group.shown(rank) == fingerprint) continue;
    return Error{
        ErrorCode::kFailedPrecondition,
        fmt::format("the weights have changed while they were loaded: found fingerprint {:016x} at rank {} and {:016x} "
                    "at rank {}",
                    group.shown(rank), rank, fingerprint, group.rank())};
  }
  return {};
}

}  // namespace windlass::worker
