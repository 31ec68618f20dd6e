// Backend: runs the model's forward pass over a batch of sequence chunks and keeps the paged KV cache.
//
// The engine decides what runs and which cache blocks belong to whom; the backend computes. The KV cache is a fixed number of
// blocks of kKvBlockTokens positions each; position p of a sequence lives in block blocks[p / kKvBlockTokens]. A backend is
// owned by the engine's loop and used from its thread alone.
#pragma once

#include <cstdint>
#include <span>

#include "planner/base/result.h"

namespace windlass::worker {

inline constexpr std::int64_t kKvBlockTokens = 16;

[[nodiscard]] constexpr std::int64_t blocks_for(std::int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

// Some consecutive tokens of one sequence: a piece of its prompt (prefill), or its newest token (decode).
struct SequenceChunk {
  std::span<const std::int32_t> tokens;  // at least one
  std::int64_t start = 0;                // position of tokens[0]; all positions before it are in the cache
  std::span<const std::int32_t> blocks;  // covers start + tokens.size() positions
  bool wants_logits = false;             // of the last token
};

class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] virtual std::int64_t kv_blocks() const = 0;

  // Writes the chunks' keys and values into the cache and returns (chunks that want logits, vocab), row-major, in chunk order.
  // The span is valid until the next call. REQUIRES: chunks are of different sequences; tokens together are at most the
  // max_batch_tokens that the backend was made with.
  [[nodiscard]] virtual Result<std::span<const float>> forward(std::span<const SequenceChunk> chunks) = 0;
};

}  // namespace windlass::worker
