// Shared by the tests with several ranks, for every kind of backend: a rank's part of a model's weights, and a schedule that
// runs on several ranks and on one at the same time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/unit/worker/fake_backend.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/backend.h"
#include "worker/engine/engine.h"
#include "worker/model/config.h"
#include "worker/model/tensor_slice.h"
#include "worker/model/weights.h"

namespace windlass::worker::testing {

// A rank's rows, or columns, of a matrix (rows, columns).
template <class T>
std::vector<T> rows_of(const std::vector<T>& from, TensorSlice slice, std::int64_t first, std::int64_t rows,
                       std::int64_t columns) {
  if (from.empty()) return {};
  const auto begin = from.begin() + (first + slice.first(rows)) * columns;
  return {begin, begin + slice.size(rows) * columns};
}
template <class T>
std::vector<T> columns_of(const std::vector<T>& from, TensorSlice slice, std::int64_t rows, std::int64_t columns) {
  if (from.empty()) return {};
  std::vector<T> out;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = from.begin() + row * columns + slice.first(columns);
    out.insert(out.end(), begin, begin + slice.size(columns));
  }
  return out;
}
inline WeightMatrix rows_of(const WeightMatrix& from, TensorSlice slice, std::int64_t first, std::int64_t rows,
                            std::int64_t columns) {
  return {from.format, rows_of(from.values, slice, first, rows, columns), rows_of(from.halves, slice, first, rows, columns),
          rows_of(from.codes, slice, first, rows, columns), rows_of(from.scales, slice, first, rows, 1)};
}
// A row keeps the scale of all its columns.
inline WeightMatrix columns_of(const WeightMatrix& from, TensorSlice slice, std::int64_t rows, std::int64_t columns) {
  return {from.format, columns_of(from.values, slice, rows, columns), columns_of(from.halves, slice, rows, columns),
          columns_of(from.codes, slice, rows, columns), from.scales};
}
inline void append(WeightMatrix& to, const WeightMatrix& more) {
  to.values.insert(to.values.end(), more.values.begin(), more.values.end());
  to.halves.insert(to.halves.end(), more.halves.begin(), more.halves.end());
  to.codes.insert(to.codes.end(), more.codes.begin(), more.codes.end());
  to.scales.insert(to.scales.end(), more.scales.begin(), more.scales.end());
}
inline void append(std::vector<float>& to, const std::vector<float>& more) { to.insert(to.end(), more.begin(), more.end()); }

// A rank's part of an MLP of this width.
inline MlpWeights mlp_of_rank(const ModelConfig& config, const MlpWeights& from, TensorSlice slice, std::int64_t width) {
  MlpWeights out = from;
  out.in = rows_of(from.in, slice, 0, width, config.hidden_size);
  out.in_bias = rows_of(from.in_bias, slice, 0, width, 1);
  if (config.activation == Activation::kSwiGlu) {
    append(out.in, rows_of(from.in, slice, width, width, config.hidden_size));
    append(out.in_bias, rows_of(from.in_bias, slice, width, width, 1));
  }
  out.out = columns_of(from.out, slice, config.hidden_size, width);
  return out;
}

// A rank's part of the model's blocks.
inline ModelWeights slice_of_rank(const ModelConfig& config, const ModelWeights& whole, BlockRange blocks, TensorSlice slice) {
  const std::int64_t hidden = config.hidden_size, q = config.q_size(), kv = config.kv_size();
  const bool ends = blocks.end == config.layers;
  ModelWeights out;
  if (blocks.first == 0 || (ends && config.tie_word_embeddings))
    out.embedding.values = rows_of(whole.embedding.values, slice, 0, config.vocab_size, hidden);
  if (blocks.first == 0) out.positions = whole.positions;
  for (std::int64_t i = blocks.first; i < blocks.end; ++i) {
    const LayerWeights& from = whole.layers[static_cast<std::size_t>(i)];
    LayerWeights layer = from;
    layer.qkv = rows_of(from.qkv, slice, 0, q, hidden);
    append(layer.qkv, rows_of(from.qkv, slice, q, kv, hidden));
    append(layer.qkv, rows_of(from.qkv, slice, q + kv, kv, hidden));
    layer.qkv_bias = rows_of(from.qkv_bias, slice, 0, q, 1);
    append(layer.qkv_bias, rows_of(from.qkv_bias, slice, q, kv, 1));
    append(layer.qkv_bias, rows_of(from.qkv_bias, slice, q + kv, kv, 1));
    layer.attention_out = columns_of(from.attention_out, slice, hidden, q);
    if (from.experts.empty()) layer.mlp = mlp_of_rank(config, from.mlp, slice, config.intermediate_size);
    for (MlpWeights& expert : layer.experts) expert = mlp_of_rank(config, expert, slice, config.expert_intermediate_size);
    out.layers.push_back(std::move(layer));
  }
  if (ends) out.final_norm = whole.final_norm;
  if (ends) out.lm_head.values = rows_of(whole.lm_head.values, slice, 0, config.vocab_size, hidden);
  return out;
}

constexpr double kMaxDifference = 1e-4;  // of FP32 logits; a top two closer than this may swap
// Limits if values between operations are rounded to BF16: relative to a row's length, and for one logit relative to a row's
// mean logit.
constexpr double kMaxBf16Difference = 0.03;
constexpr double kMaxBf16Logit = 0.2;

struct Compared {
  bool bf16 = false;
  std::int64_t rows = 0;
  std::int64_t close = 0;  // rows with another greedy token, with the top two closer than the limit
};

inline void expect_same_rows(std::span<const float> found, std::span<const float> expected, std::int64_t vocab,
                             Compared& counts) {
  ASSERT_EQ(found.size(), expected.size());
  for (auto row = expected.begin(); row != expected.end(); row += vocab) {
    ++counts.rows;
    const auto other = found.begin() + (row - expected.begin());
    double difference = 0;
    double length = 0;
    for (std::int64_t i = 0; i < vocab; ++i) {
      difference += std::pow(static_cast<double>(other[i]) - static_cast<double>(row[i]), 2);
      length += std::pow(static_cast<double>(row[i]), 2);
    }
    const double most = counts.bf16 ? kMaxBf16Logit * std::sqrt(length / static_cast<double>(vocab)) : kMaxDifference;
    for (std::int64_t i = 0; i < vocab; ++i) ASSERT_NEAR(other[i], row[i], most);
    if (counts.bf16) {
      ASSERT_LE(std::sqrt(difference / length), kMaxBf16Difference);
    }
    const auto best = std::max_element(row, row + vocab) - row;
    const auto chosen = std::max_element(other, other + vocab) - other;
    if (best == chosen) continue;
    ++counts.close;
    EXPECT_LT(row[best] - row[chosen], most);
  }
}

// Runs every batch on both backends and returns the first one's result, so that both see the same schedule.
class Both final : public Backend {
 public:
  Both(const ModelConfig& config, Backend& reference, Backend& first, Backend* second)
      : config_(config), reference_(reference), first_(first), second_(second) {}

  [[nodiscard]] std::int64_t vocab_size() const override { return reference_.vocab_size(); }
  [[nodiscard]] std::int64_t kv_blocks() const override { return reference_.kv_blocks(); }
  [[nodiscard]] KvShape kv_shape() const override { return reference_.kv_shape(); }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    reference_.read_kv(range, blocks, out);
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    reference_.write_kv(range, blocks, in);
  }

  Compared counts;

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> wanted, const LayerDone& /*layer_done*/,
                                                   std::int64_t /*skip*/) override {
    std::vector<SequenceChunk> chunks(wanted.begin(), wanted.end());
    for (SequenceChunk& each : chunks) each.need = {};  // whole rows, to compare them
    const auto expected = reference_.forward(chunks);
    EXPECT_TRUE(expected.ok());
    auto found = first_.forward(chunks);
    EXPECT_TRUE(found.ok()) << found.error().message;
    if (second_ != nullptr && found.ok()) {  // the remaining blocks
      std::vector<SequenceChunk> rest(chunks.begin(), chunks.end());
      const float* hidden = found->data();
      for (SequenceChunk& each : rest) {
        each.hidden = {hidden, each.tokens.size() * static_cast<std::size_t>(config_.hidden_size)};
        hidden += each.hidden.size();
        each.tokens = {};
      }
      found = second_->forward(rest);
      EXPECT_TRUE(found.ok()) << found.error().message;
    }
    if (found.ok()) expect_same_rows(*found, *expected, vocab_size(), counts);
    return expected;
  }

  const ModelConfig& config_;
  Backend& reference_;
  Backend& first_;
  Backend* second_;
};

// Runs requests that arrive over time, are computed in chunks, share blocks of a common beginning and preempt each other.
// `found`: incremented by the number of shared tokens.
inline std::int64_t run_schedule(Rng& rng, const ModelConfig& config, Backend& backend, std::int64_t* found = nullptr,
                                 RequestId requests = 10) {
  EngineOptions options;
  options.max_running = 4;
  options.max_waiting = 100;
  options.max_context_tokens = 100;
  options.max_batch_tokens = rng.integer(8, 40);
  const ManualClock clock;
  Engine engine(options, backend, letter, clock);
  RequestId next = 0;
  const auto common = random_tokens(rng, config, 70);
  for (int step = 0; next < requests || !engine.idle(); ++step) {
    for (; next < requests && rng.uniform() < 0.4; ++next) {
      auto prompt = random_tokens(rng, config, rng.integer(1, 70));
      if (rng.uniform() < 0.5) std::copy_n(common.begin(), prompt.size() - 1, prompt.begin());
      EXPECT_TRUE(engine.submit(next, greedy(std::move(prompt), rng.integer(1, 30)), 0).ok());
    }
    for (const TokenEvent& event : engine.step()) {
      EXPECT_NE(event.finish, FinishReason::kError) << event.error;
    }
  }
  if (found != nullptr) *found += engine.prefix_counts().found;
  return engine.preemptions();
}

}  // namespace windlass::worker::testing
