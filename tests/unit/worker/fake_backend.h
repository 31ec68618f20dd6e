// HashBackend: a fake Backend without a model. A token's logits are a hash of the whole sequence so far, which it reads back
// from its "cache" through the block table. So any error of the engine in positions, chunks or blocks changes the tokens.
// Exact, and fast enough for thousands of schedules.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "worker/backend/backend.h"
#include "worker/engine/clock.h"
#include "worker/engine/request.h"

namespace windlass::worker::testing {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override { return now; }
  double now = 0;
};

// Token t is the letter 'a' + t % 26.
inline std::string_view letter(std::int32_t token) {
  static const std::string kLetters = "abcdefghijklmnopqrstuvwxyz";
  return std::string_view(kLetters).substr(static_cast<std::size_t>(token % 26), 1);
}

inline GenerationRequest greedy(std::vector<std::int32_t> prompt, std::int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

class HashBackend final : public Backend {
 public:
  HashBackend(std::int64_t vocab, std::int64_t blocks, std::int64_t max_batch_tokens)
      : vocab_(vocab),
        blocks_(blocks),
        max_batch_tokens_(max_batch_tokens),
        cache_(static_cast<std::size_t>(kLayers * blocks * kKvBlockTokens), -1) {}

  [[nodiscard]] std::int64_t vocab_size() const override { return vocab_; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return blocks_; }

  // The token after this sequence under greedy sampling.
  [[nodiscard]] std::int32_t next_token(const std::vector<std::int32_t>& tokens) const {
    return static_cast<std::int32_t>(hash(tokens) % static_cast<std::uint64_t>(vocab_));
  }

  // A token stores itself in each layer.
  [[nodiscard]] KvShape kv_shape() const override { return {kLayers, 1}; }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    for (std::int64_t p = range.start; p < range.start + range.tokens; ++p) {
      *out++ = static_cast<float>(cache_[slot(range.layer, blocks, p)]);
    }
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    for (std::int64_t p = range.start; p < range.start + range.tokens; ++p) {
      cache_[slot(range.layer, blocks, p)] = static_cast<std::int32_t>(*in++);
    }
  }

  std::int64_t steps = 0;
  std::int64_t fail_at_step = -1;
  std::int64_t largest_batch = 0;
  std::int64_t read_as_written = 0;  // chunks that read a block which another chunk filled in the same step

 private:
  static constexpr std::int64_t kLayers = 2;

  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t /*skip*/) override {
    ++steps;
    if (fail_at_step == steps) return Error{ErrorCode::kInternal, "the backend broke"};
    logits_.clear();
    std::int64_t tokens = 0;
    std::map<std::int32_t, bool> written;  // and whether it is full then
    for (const SequenceChunk& chunk : chunks) {
      tokens += static_cast<std::int64_t>(chunk.tokens.size());
      EXPECT_FALSE(chunk.tokens.empty());
      const std::int64_t end = chunk.start + static_cast<std::int64_t>(chunk.tokens.size());
      EXPECT_GE(static_cast<std::int64_t>(chunk.blocks.size()), blocks_for(end));
      for (auto at = chunk.start / kKvBlockTokens; at < static_cast<std::int64_t>(chunk.blocks.size()); ++at) {
        const std::int32_t block = chunk.blocks[static_cast<std::size_t>(at)];
        EXPECT_TRUE(written.emplace(block, (at + 1) * kKvBlockTokens <= end).second) << "two write block " << block;
      }
    }
    for (const SequenceChunk& chunk : chunks) {
      bool reads_written = false;
      for (const std::int32_t block : chunk.blocks.first(static_cast<std::size_t>(chunk.start / kKvBlockTokens))) {
        const auto at = written.find(block);
        if (at == written.end()) continue;
        EXPECT_TRUE(at->second) << "block " << block << " is read, and another chunk does not fill it";
        reads_written = true;
      }
      read_as_written += reads_written ? 1 : 0;
    }
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (const SequenceChunk& chunk : chunks) {
        for (std::size_t t = 0; t < chunk.tokens.size(); ++t)
          cache_[slot(layer, chunk.blocks, chunk.start + static_cast<std::int64_t>(t))] = chunk.tokens[t];
      }
      if (layer_done) layer_done(layer);
    }
    for (const SequenceChunk& chunk : chunks) {
      if (!chunk.wants_logits) continue;
      std::vector<std::int32_t> sequence;
      for (std::int64_t p = 0; p < chunk.start + static_cast<std::int64_t>(chunk.tokens.size()); ++p) {
        sequence.push_back(cache_[slot(0, chunk.blocks, p)]);
        EXPECT_EQ(cache_[slot(1, chunk.blocks, p)], sequence.back()) << "the layers of position " << p << " differ";
      }
      const std::size_t row = logits_.size();
      logits_.resize(row + static_cast<std::size_t>(vocab_), 0.0F);
      logits_[row + static_cast<std::size_t>(next_token(sequence))] = 10;
    }
    EXPECT_LE(tokens, max_batch_tokens_);
    largest_batch = std::max(largest_batch, static_cast<std::int64_t>(chunks.size()));
    return std::span<const float>(logits_);
  }

  static std::uint64_t hash(const std::vector<std::int32_t>& tokens) {
    std::uint64_t h = 0xCBF29CE484222325ULL;
    for (const std::int32_t token : tokens) h = (h ^ static_cast<std::uint64_t>(token + 1)) * 0x100000001B3ULL;
    return h ^ (h >> 29U);
  }
  [[nodiscard]] std::size_t slot(std::int64_t layer, std::span<const std::int32_t> blocks, std::int64_t position) const {
    const std::int64_t block = layer * blocks_ + blocks[static_cast<std::size_t>(position / kKvBlockTokens)];
    return static_cast<std::size_t>(block * kKvBlockTokens + position % kKvBlockTokens);
  }

  std::int64_t vocab_;
  std::int64_t blocks_;
  std::int64_t max_batch_tokens_;
  std::vector<std::int32_t> cache_;
  std::vector<float> logits_;
};

// The text of greedy decoding with the hash backend, computed without an engine.
inline std::string expected_text(const HashBackend& backend, std::vector<std::int32_t> tokens, std::int64_t count) {
  std::string text;
  for (; count > 0; --count) {
    tokens.push_back(backend.next_token(tokens));
    text += letter(tokens.back());
  }
  return text;
}

}  // namespace windlass::worker::testing
