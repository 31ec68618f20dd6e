// InstantBackend: a model that takes no time: logits that were drawn before, other ones each time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/base/rng.h"
#include "worker/backend/backend.h"

namespace windlass::worker {

class InstantBackend : public Backend {
 public:
  // `rows`: at most so many are wanted of a forward().
  InstantBackend(std::int64_t vocab, std::int64_t rows) : vocab_(vocab) {
    Rng rng(2, "logits");
    for (std::int64_t i = 0; i < (rows + kDraws) * vocab; ++i) logits_.push_back(static_cast<float>(rng.uniform(-10, 10)));
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return 4096; }
  [[nodiscard]] KvShape kv_shape() const override { return {1, 1}; }
  void read_kv(const KvRange& /*range*/, std::span<const std::int32_t> /*blocks*/, float* /*out*/) const override {}
  void write_kv(const KvRange& /*range*/, std::span<const std::int32_t> /*blocks*/, const float* /*in*/) override {}

 protected:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& /*layer_done*/,
                                                   std::int64_t /*skip*/) override {
    const auto rows = std::count_if(chunks.begin(), chunks.end(), [](const auto& chunk) { return chunk.wants_logits; });
    calls_ = (calls_ + 1) % kDraws;
    return std::span<const float>(logits_).subspan(static_cast<std::size_t>(calls_ * vocab_),
                                                   static_cast<std::size_t>(rows * vocab_));
  }

 private:
  static constexpr std::int64_t kDraws = 16;
  std::int64_t vocab_, calls_ = 0;
  std::vector<float> logits_;
};

}  // namespace windlass::worker
