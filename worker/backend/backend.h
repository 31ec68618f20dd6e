// Backend: runs the model's forward pass over a batch of sequence chunks and stores the paged KV cache.
//
// The engine decides what runs and which cache blocks belong to which sequence; the backend computes. The KV cache has a fixed
// number of blocks of kKvBlockTokens positions; position p of a sequence is in block blocks[p / kKvBlockTokens]. A backend is
// owned by the engine's loop or a chain's stage, and used only from its thread.
//
// A backend may have only some of the model's transformer blocks: the embedding belongs to the first block, the final norm
// and the output matrix to the last. Backends pass hidden states to each other: the rows that enter and leave a block.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "planner/base/result.h"
#include "worker/backend/logit_summary.h"
#include "worker/model/config.h"

namespace windlass::worker {

inline constexpr std::int64_t kKvBlockTokens = 16;

// A shorter context is not suggested when memory is insufficient.
inline constexpr std::int64_t kLeastAdvisedContext = 256;

[[nodiscard]] constexpr std::int64_t blocks_for(std::int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

// Consecutive tokens of one sequence: a piece of its prompt (prefill), or its newest token (decode).
struct SequenceChunk {
  std::span<const std::int32_t> tokens;  // at least one; none if `hidden` is set
  std::int64_t start = 0;                // position of the first token; all earlier positions are in the cache
  std::span<const std::int32_t> blocks;  // covers start + its tokens
  bool wants_logits = false;             // of the last token
  // (tokens, hidden size): the output of the block before this backend's first, for backends that do not start at block 0.
  std::span<const float> hidden = {};
  // The sequence's session at the later workers of its chain; empty: this worker has all blocks.
  std::string_view chain_session = {};
  RowNeed need = {};            // what is needed of the logits, if wanted
  bool row_may_follow = false;  // if a summary suffices: row() may still be called
};

// The number of tokens: of ids, or of rows of hidden states.
[[nodiscard]] inline std::int64_t tokens_of(const SequenceChunk& chunk, std::int64_t hidden_size) {
  if (chunk.hidden.empty()) return static_cast<std::int64_t>(chunk.tokens.size());
  return static_cast<std::int64_t>(chunk.hidden.size()) / hidden_size;
}

// A token's data in the cache: `values` floats in each of `layers` layers, the keys of all heads and then their values.
struct KvShape {
  std::int64_t layers = 0;
  std::int64_t values = 0;
};

// Consecutive positions of one sequence in one layer's cache.
struct KvRange {
  std::int64_t layer = 0;
  std::int64_t start = 0;
  std::int64_t tokens = 0;
};

// Called during forward() when a layer's keys and values of all chunks are in the cache.
using LayerDone = std::function<void(std::int64_t layer)>;

class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] virtual std::int64_t kv_blocks() const = 0;
  [[nodiscard]] virtual KvShape kv_shape() const = 0;

  // Runs the chunks. In each layer it writes all keys and values before it reads any, so a chunk may follow positions of
  // another chunk of the same call, in a block that both share. Returns logits (chunks that want them, vocab), row-major, in
  // chunk order; a backend without the last block returns the hidden states of all tokens instead, (tokens, hidden size). The
  // span is valid until the next call; a row that has a summary() may be missing from it. `skip`: number of leading blocks to
  // skip, because `hidden` has already passed them elsewhere. REQUIRES: chunks are of different sequences; together they have
  // at most the max_batch_tokens that the backend was made with.
  [[nodiscard]] Result<std::span<const float>> forward(std::span<const SequenceChunk> chunks,
                                                       const LayerDone& layer_done = nullptr, std::int64_t skip = 0) {
    return run(chunks, layer_done, skip);
  }
  // Why this chunk failed in the last forward() although others succeeded (its row, if any, is then undefined); nullptr if it
  // did not fail. Valid until the next forward(). Only chunks with a chain session can fail this way.
  [[nodiscard]] virtual const Error* failure(std::size_t /*chunk*/) const { return nullptr; }

  // The summary of this row of logits (counting rows that were wanted) of the last forward(), if the chunk's need allows one
  // and the backend makes it; otherwise nullptr, and the row is in forward()'s result. Valid until the next forward().
  [[nodiscard]] virtual const LogitSummary* summary(std::size_t /*row*/) const { return nullptr; }
  // The full row of such a summary; valid until the next forward(). REQUIRES: the row has a summary().
  [[nodiscard]] virtual Result<std::span<const float>> row(std::size_t /*row*/) {
    return Error{ErrorCode::kInternal, "row: must have a summary"};
  }

  // Copy a range out of or into the cache: (tokens, kv_shape().values), row-major, the same layout for every kind of backend.
  // Any thread, even during forward(), for positions that it does not write (read) or does not use (write).
  virtual void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const = 0;
  virtual void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) = 0;
  // Whether all numbers in its cache are exact in BF16.
  [[nodiscard]] virtual bool kv_is_bf16() const { return false; }

 private:
  [[nodiscard]] virtual Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                           std::int64_t skip) = 0;
};

}  // namespace windlass::worker
