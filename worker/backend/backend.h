// Backend: runs the model's forward pass over a batch of sequence chunks and keeps the paged KV cache.
//
// The engine decides what runs and which cache blocks belong to whom; the backend computes. The KV cache is a fixed number of
// blocks of kKvBlockTokens positions each; position p of a sequence lives in block blocks[p / kKvBlockTokens]. A backend is
// owned by the engine's loop, or by a chain's stage, and used from its thread alone.
//
// A backend may have some of the model's transformer blocks alone: the embedding goes with the first block, the final norm and
// the output matrix with the last. Between backends pass hidden states, the rows that enter and leave a block.
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

// Where memory does not suffice, a shorter one is no advice.
inline constexpr std::int64_t kLeastAdvisedContext = 256;

[[nodiscard]] constexpr std::int64_t blocks_for(std::int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

// Some consecutive tokens of one sequence: a piece of its prompt (prefill), or its newest token (decode).
struct SequenceChunk {
  std::span<const std::int32_t> tokens;  // at least one; none where `hidden` is given
  std::int64_t start = 0;                // position of the first token; all positions before it are in the cache
  std::span<const std::int32_t> blocks;  // covers start + its tokens
  bool wants_logits = false;             // of the last token
  // (tokens, hidden size): what the block before this backend's first one gave; for backends that do not begin at block 0.
  std::span<const float> hidden = {};
  // Names the sequence's room at the later workers of its chain; empty: this worker computes all of it.
  std::string_view chain_session = {};
  RowNeed need = {};            // of the logits, where they are wanted
  bool row_may_follow = false;  // where a summary is enough: row() may be asked for nevertheless
};

// How many: as they have ids, or rows of hidden states.
[[nodiscard]] inline std::int64_t tokens_of(const SequenceChunk& chunk, std::int64_t hidden_size) {
  if (chunk.hidden.empty()) return static_cast<std::int64_t>(chunk.tokens.size());
  return static_cast<std::int64_t>(chunk.hidden.size()) / hidden_size;
}

// What a token leaves in the cache: `values` floats in each of `layers` layers, the keys of all heads and then their values.
struct KvShape {
  std::int64_t layers = 0;
  std::int64_t values = 0;
};

// Some consecutive positions of one sequence in one layer's cache.
struct KvRange {
  std::int64_t layer = 0;
  std::int64_t start = 0;
  std::int64_t tokens = 0;
};

// Called within forward() when a layer's keys and values of all chunks are in the cache.
using LayerDone = std::function<void(std::int64_t layer)>;

class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  [[nodiscard]] virtual std::int64_t kv_blocks() const = 0;
  [[nodiscard]] virtual KvShape kv_shape() const = 0;

  // Writes the chunks' keys and values into the cache, in each layer all of them before it reads any: what comes before a
  // chunk may be another chunk of the same call, in a block that both have. Returns (chunks that want logits, vocab),
  // row-major, in chunk order; a backend without the last block returns the hidden states of all tokens instead, (tokens,
  // hidden size). The span is valid until the next call. A row that has a summary() need not be in it. `skip`: so many of its
  // first blocks are left out, since `hidden` has passed them elsewhere. REQUIRES: chunks are of different sequences; tokens
  // together are at most the max_batch_tokens that the backend was made with.
  [[nodiscard]] Result<std::span<const float>> forward(std::span<const SequenceChunk> chunks,
                                                       const LayerDone& layer_done = nullptr, std::int64_t skip = 0) {
    return run(chunks, layer_done, skip);
  }
  // Of the last forward() that returned rows: why the chunk with this index has failed though others went on (its row, if it
  // wants one, says nothing); else nullptr. Valid until the next forward(). Only chunks with a chain session fail so.
  [[nodiscard]] virtual const Error* failure(std::size_t /*chunk*/) const { return nullptr; }

  // Of the last forward() that returned logits: what this row (of those that were wanted) was summed up to, where its chunk's
  // need allows and the backend does so; else nullptr, and the row is in what forward() returned. Valid until the next
  // forward().
  [[nodiscard]] virtual const LogitSummary* summary(std::size_t /*row*/) const { return nullptr; }
  // Such a row after all; valid until the next forward(). REQUIRES: it has a summary().
  [[nodiscard]] virtual Result<std::span<const float>> row(std::size_t /*row*/) {
    return Error{ErrorCode::kInternal, "forward: found no summary of this row"};
  }

  // Copy a range out of the cache or into it: (tokens, kv_shape().values), row-major, the same from every kind of backend. From
  // any thread, also while forward() runs, for positions that it neither writes (read) nor touches (write).
  virtual void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const = 0;
  virtual void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) = 0;
  // Whether all numbers of its cache are exact as BF16.
  [[nodiscard]] virtual bool kv_is_bf16() const { return false; }

 private:
  [[nodiscard]] virtual Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                           std::int64_t skip) = 0;
};

}  // namespace windlass::worker
