// The message to the ranks is a list of numbers: how many chunks, which blocks to skip, and whether layers are watched; then
// per chunk five numbers, its logit needs, tokens, cache blocks and hidden states. A special value asks for a row of the last
// step instead.
#include "worker/parallel/tensor_parallel.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "worker/parallel/rank_kv.h"

namespace windlass::worker {
namespace {

struct StepHead {
  std::int64_t chunks = 0;   // 0: stop; or kRowWanted
  std::int64_t skip = 0;     // or the index of the row
  std::int64_t watched = 0;  // 1: layers are reported, so ranks with devices must all compute without a graph
};

constexpr std::int64_t kRowWanted = -1;

struct ChunkHead {
  std::int64_t tokens = 0;  // ids
  std::int64_t start = 0;
  std::int64_t blocks = 0;
  std::int64_t hidden = 0;  // floats
  std::int64_t wants_logits = 0;
  RowNeed need = {};
};

// Appends values, and detects when the buffer is full.
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

// REQUIRES: values are read as they were written.
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
  TensorParallelBackend(const ModelConfig& config, RankGroup& group, std::unique_ptr<Backend> own, std::unique_ptr<RankKv> kv,
                        std::function<void(const Error&)> lost)
      : vocab_size_(config.vocab_size),
        kv_size_(config.kv_size()),
        group_(group),
        own_(std::move(own)),
        kv_(std::move(kv)),
        lost_(std::move(lost)) {
    assert(group_.rank() == 0);
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

  [[nodiscard]] const LogitSummary* summary(std::size_t row) const override { return own_->summary(row); }
  [[nodiscard]] Result<std::span<const float>> row(std::size_t row) override {
    MessageWriter(group_.outbox()).put_one(StepHead{kRowWanted, static_cast<std::int64_t>(row)});
    group_.send();
    return own_->row(row);
  }

  [[nodiscard]] bool kv_is_bf16() const override { return own_->kv_is_bf16(); }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    kv_->read(range, blocks, out);
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    kv_->write(range, blocks, in);
  }

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    MessageWriter out(group_.outbox());
    out.put_one(StepHead{static_cast<std::int64_t>(chunks.size()), skip, layer_done != nullptr ? 1 : 0});
    for (const SequenceChunk& chunk : chunks) {
      out.put_one(ChunkHead{static_cast<std::int64_t>(chunk.tokens.size()), chunk.start,
                            static_cast<std::int64_t>(chunk.blocks.size()), static_cast<std::int64_t>(chunk.hidden.size()),
                            chunk.wants_logits ? 1 : 0, chunk.need});
      out.put(chunk.tokens);
      out.put(chunk.blocks);
      out.put(chunk.hidden);
    }
    if (out.full()) {
      return Error{ErrorCode::kInternal,
                   fmt::format("forward: must fit the ranks' {} bytes for a batch", group_.outbox().size())};
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
  const std::unique_ptr<RankKv> kv_;  // destroyed before own_
  const std::function<void(const Error&)> lost_;
};

// Works for any backend's options.
template <class Options>
std::int64_t message_bytes(const ModelConfig& config, const Options& options) {
  const bool begins = !options.blocks || options.blocks->first == 0;
  // A chunk has at least one token, and the blocks of its sequence, which other chunks may share.
  const auto each =
      static_cast<std::int64_t>(sizeof(ChunkHead)) + (begins ? static_cast<std::int64_t>(sizeof(std::int32_t))
                                                             : config.hidden_size * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t step =
      static_cast<std::int64_t>(sizeof(StepHead)) + options.max_batch_tokens * each +
      options.max_batch_tokens * blocks_for(options.max_context_tokens) * static_cast<std::int64_t>(sizeof(std::int32_t));
  return std::max(step, static_cast<std::int64_t>(kMaxTold));
}

}  // namespace

RankGroupSizes tensor_parallel_sizes(const ModelConfig& config, const CpuBackendOptions& options, int ranks) {
  RankGroupSizes sizes = rank_group_sizes(config, options, ranks);
  sizes.message_bytes = message_bytes(config, options);
  return sizes;
}

RankGroupSizes tensor_parallel_sizes(const ModelConfig& config, const cuda::CudaBackendOptions& options, int ranks) {
  RankGroupSizes sizes = with_rank_kv(cuda::device_rank_sizes(config, options, ranks), config);
  sizes.message_bytes = message_bytes(config, options);
  return sizes;
}

std::unique_ptr<Backend> make_tensor_parallel_backend(const ModelConfig& config, const CpuBackendOptions& options,
                                                      std::unique_ptr<Backend> own, std::function<void(const Error&)> lost) {
  return std::make_unique<TensorParallelBackend>(config, *options.group, std::move(own), shared_rank_kv(config, options),
                                                 std::move(lost));
}

std::unique_ptr<Backend> make_tensor_parallel_backend(const ModelConfig& config, RankGroup& group, std::unique_ptr<Backend> own,
                                                      std::function<void(const Error&)> lost) {
  auto kv = device_rank_kv(config, group, *own, std::move(lost));
  return std::make_unique<TensorParallelBackend>(config, group, std::move(own), std::move(kv), nullptr);
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
    if (step.chunks == kRowWanted) {
      const auto row = own.row(static_cast<std::size_t>(step.skip));
      if (!row.ok()) return row.error();
      continue;
    }
    std::vector<Part> parts(static_cast<std::size_t>(step.chunks));
    std::vector<SequenceChunk> chunks;
    for (Part& part : parts) {
      const auto head = in.one<ChunkHead>();
      part.tokens = in.several<std::int32_t>(head.tokens);
      part.blocks = in.several<std::int32_t>(head.blocks);
      part.hidden = in.several<float>(head.hidden);
      chunks.push_back({part.tokens, head.start, part.blocks, head.wants_logits != 0, part.hidden, {}, head.need});
    }
    const LayerDone watched = step.watched != 0 ? [](std::int64_t) {} : LayerDone();
    const auto rows = own.forward(chunks, watched, step.skip);
    // Other errors concern the batch, and all ranks have them.
    if (!rows.ok() && rows.error().code == ErrorCode::kUnavailable) return rows.error();
  }
}

Result<void> serve_device_rank(RankGroup& group, Backend& own) {
  std::jthread copies([&] {
    // Whatever ends the steps also ends the copies; a lost rank is noticed by all.
    if (const auto served = serve_rank_kv(group, own); !served.ok()) group.fail(served.error().message);
  });
  const auto served = serve_tensor_rank(group, own);
  if (!served.ok()) group.fail(served.error().message);  // stops the copies
  return served;
}

Result<std::vector<std::byte>> told_by_rank_0(RankGroup& group, std::span<const std::byte> own) {
  assert(own.size() <= kMaxTold);
  std::vector<std::byte> told(own.begin(), own.end());
  if (group.rank() == 0) {
    std::copy(own.begin(), own.end(), group.outbox().begin());
    group.send();
  } else {
    WINDLASS_ASSIGN_OR_RETURN(const auto message, group.receive());
    std::copy_n(message.begin(), told.size(), told.begin());
  }
  WINDLASS_RETURN_IF_ERROR(group.barrier(RankGroup::kNoLimit));
  return told;
}

Result<std::int64_t> least_of_ranks(RankGroup& group, std::int64_t own) {
  group.show(static_cast<std::uint64_t>(own));
  WINDLASS_RETURN_IF_ERROR(group.barrier(RankGroup::kNoLimit));
  std::int64_t least = own;
  for (int rank = 0; rank < group.ranks(); ++rank) least = std::min(least, static_cast<std::int64_t>(group.shown(rank)));
  WINDLASS_RETURN_IF_ERROR(group.barrier(RankGroup::kNoLimit));  // before any rank shows another number
  return least;
}

Result<void> meet_loaded(RankGroup& group, std::uint64_t fingerprint) {
  group.show(fingerprint);
  WINDLASS_RETURN_IF_ERROR(group.barrier(RankGroup::kNoLimit));
  for (int rank = 0; rank < group.ranks(); ++rank) {
    if (group.shown(rank) == fingerprint) continue;
    return Error{
        ErrorCode::kFailedPrecondition,
        fmt::format("the weights changed while they were loaded: fingerprint {:016x} at rank {} and {:016x} at rank {}",
                    group.shown(rank), rank, fingerprint, group.rank())};
  }
  return {};
}

}  // namespace windlass::worker
