// InstantBackend: a model that takes no time. It returns logits drawn beforehand, different ones each time, or their summaries,
// as a GPU does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/base/rng.h"
#include "tests/unit/worker/logit_summaries.h"
#include "worker/backend/backend.h"

namespace windlass::worker {

class InstantBackend : public Backend {
 public:
  // `rows`: maximum number of rows per forward(). `need`: what summaries are made for; without it there are none.
  InstantBackend(std::int64_t vocab, std::int64_t rows, const RowNeed& need = {}) : vocab_(vocab) {
    Rng rng(2, "logits");
    for (std::int64_t i = 0; i < (rows + kDraws) * vocab; ++i) logits_.push_back(static_cast<float>(rng.uniform(-10, 10)));
    for (std::int64_t row = 0; need.likeliest > 0 && row < rows + kDraws; ++row)
      summaries_.push_back(testing::summary_of(row_at(row), need));
  }
  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return 4096; }
  [[nodiscard]] KvShape kv_shape() const override { return {1, 1}; }
  [[nodiscard]] const LogitSummary* summary(std::size_t row) const override {
    return summaries_.empty() ? nullptr : &summaries_[static_cast<std::size_t>(calls_) + row];
  }
  [[nodiscard]] Result<std::span<const float>> row(std::size_t row) override {
    return row_at(calls_ + static_cast<std::int64_t>(row));
  }
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
  [[nodiscard]] std::span<const float> row_at(std::int64_t row) const {
    return std::span(logits_).subspan(static_cast<std::size_t>(row * vocab_), static_cast<std::size_t>(vocab_));
  }

  std::int64_t vocab_, calls_ = 0;
  std::vector<float> logits_;
  std::vector<LogitSummary> summaries_;
};

}  // namespace windlass::worker
