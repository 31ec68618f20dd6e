// Sequences that run through any kind of backend in random chunks, batched together, with shuffled cache blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/unit/worker/random_model.h"
#include "tests/unit/worker/reference_model.h"
#include "worker/backend/backend.h"

namespace windlass::worker::testing {

class CutSequences {
 public:
  static constexpr std::int64_t kMaxTokens = 96;  // per batch
  static constexpr std::int64_t kMaxRows = 4;

  // The wanted logits must equal the reference's for the whole sequence.
  struct Batch {
    std::vector<SequenceChunk> chunks;
    std::vector<const Row*> expected;
  };

  // `kv_blocks`: size of the cache. `max_tokens`: longest sequence.
  CutSequences(Rng& rng, const ModelConfig& config, const ModelWeights& weights, std::int64_t kv_blocks,
               std::int64_t max_tokens)
      : rng_(rng), sequences_(3) {
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(kv_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    for (std::size_t i = blocks.size() - 1; i > 0; --i)
      std::swap(blocks[i], blocks[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i)))]);
    for (Sequence& sequence : sequences_) {
      sequence.tokens = random_tokens(rng, config, rng.integer(1, max_tokens));
      sequence.expected = reference_logits(config, weights, sequence.tokens);
      for (std::int64_t n = blocks_for(static_cast<std::int64_t>(sequence.tokens.size())); n > 0; --n) {
        sequence.blocks.push_back(blocks.back());
        blocks.pop_back();
      }
    }
  }

  // Returns false when everything is computed; otherwise the batch is not empty.
  bool next(Batch& batch) {
    batch = {};
    while (batch.chunks.empty()) {
      if (std::all_of(sequences_.begin(), sequences_.end(), [](const Sequence& each) { return each.left() == 0; }))
        return false;
      const bool decodes = rng_.uniform() < 0.3;  // only single tokens, which can run as graphs
      for (Sequence& sequence : sequences_) {
        if (sequence.left() == 0 || rng_.uniform() < 0.3) continue;  // skip this batch
        const bool one = decodes || rng_.uniform() < 0.3;
        const std::int64_t count = one ? 1 : rng_.integer(1, std::min(sequence.left(), kMaxTokens / 3));
        const bool wants = rng_.uniform() < 0.8;
        batch.chunks.push_back(
            {std::span(sequence.tokens).subspan(static_cast<std::size_t>(sequence.done), static_cast<std::size_t>(count)),
             sequence.done, sequence.blocks, wants});
        sequence.done += count;
        if (wants) batch.expected.push_back(&sequence.expected[static_cast<std::size_t>(sequence.done - 1)]);
      }
    }
    return true;
  }

 private:
  struct Sequence {
    [[nodiscard]] std::int64_t left() const { return static_cast<std::int64_t>(tokens.size()) - done; }
    std::vector<std::int32_t> tokens;
    std::vector<Row> expected;  // after each token
    std::vector<std::int32_t> blocks;
    std::int64_t done = 0;
  };

  Rng& rng_;
  std::vector<Sequence> sequences_;
};

// One layer, so that the result depends on attention over a long context.
inline ModelConfig one_layer(std::int64_t window) {
  ModelConfig config;
  config.windows = {window};
  config.kv_heads = 1;
  config.heads = 4;
  config.head_dim = 8;
  config.hidden_size = 16;
  config.layers = 1;
  config.intermediate_size = 16;
  config.vocab_size = 20;
  return config;
}

// A prompt whose keys and values move from one backend's cache to other blocks of other backends, layer by layer, as the
// callback reports them; each backend then continues with the last token.
class MovedPrompt {
 public:
  static constexpr std::int64_t kBlocks = 6;  // blocks in a cache

  MovedPrompt(Rng& rng, const ModelConfig& config) : tokens_(random_tokens(rng, config, kPrompt + 1)) {}

  // `move(layer, values)` gets the prompt's values after they were read from `from`. Returns the number of layers.
  template <class Move>
  [[nodiscard]] std::int64_t compute(Backend& from, const Move& move) const {
    const SequenceChunk prompt{std::span(tokens_).first(kPrompt), 0, here_, false};
    std::int64_t layers = 0;
    const auto moved = [&](std::int64_t layer) {
      EXPECT_EQ(layer, layers++);
      std::vector<float> values(static_cast<std::size_t>(kPrompt * from.kv_shape().values));
      move(layer, values);
    };
    EXPECT_TRUE(from.forward(std::span(&prompt, 1), moved).ok());
    return layers;
  }
  void read(Backend& from, std::int64_t layer, std::vector<float>& values) const {
    from.read_kv({layer, 0, kPrompt}, here_, values.data());
  }
  // Writes two ranges, the second one first.
  void write(Backend& to, std::int64_t layer, const std::vector<float>& values) const {
    to.write_kv({layer, 17, kPrompt - 17}, there_, values.data() + 17 * to.kv_shape().values);
    to.write_kv({layer, 0, 17}, there_, values.data());
  }
  // The last token's logits on the backend that computed the prompt, or on one that received it.
  [[nodiscard]] std::vector<float> last(Backend& backend, bool computed) const {
    const SequenceChunk chunk{std::span(tokens_).last(1), kPrompt, computed ? here_ : there_, true};
    const auto logits = backend.forward(std::span(&chunk, 1));
    EXPECT_TRUE(logits.ok());
    return logits.ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }

 private:
  static constexpr std::int64_t kPrompt = 40;

  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> here_{5, 0, 3}, there_{1, 2, 4};
};

}  // namespace windlass::worker::testing
