// PackedBatch: all that the kernels of one forward pass must know of its chunks, in one array that goes to the device at once.
//
// Single tokens (decode) and pieces of prompts (prefill) are listed apart, since different kernels attend to them; everything
// else looks at all tokens alike. Pure functions over the caller's memory.
#pragma once

#include <cstdint>
#include <span>

#include "planner/base/result.h"
#include "worker/backend/backend.h"

namespace windlass::worker::cuda {

// How many of what, and where each list begins in the array, in numbers of 4 bytes.
struct PackedBatch {
  std::int64_t tokens = 0;       // ids, positions, slots: one of each for every token
  std::int64_t decode_rows = 0;  // DecodeRow
  std::int64_t tiles = 0;        // PrefillTile
  std::int64_t logit_rows = 0;   // rows of tokens
  std::int64_t longest = 0;      // context of a decode row, in tokens

  std::int64_t ids_at = 0;
  std::int64_t positions_at = 0;
  std::int64_t slots_at = 0;
  std::int64_t logit_rows_at = 0;
  std::int64_t needs_at = 0;  // RowNeed, one for each of logit_rows
  std::int64_t decode_rows_at = 0;
  std::int64_t tiles_at = 0;
  std::int64_t tables_at = 0;
  std::int64_t size = 0;
};

// Where a sequence's position is in a layer's cache, as kernels count: RopeStore::slots.
[[nodiscard]] inline std::int32_t slot_of(std::span<const std::int32_t> blocks, std::int64_t position) {
  return static_cast<std::int32_t>(blocks[static_cast<std::size_t>(position / kKvBlockTokens)] * kKvBlockTokens +
                                   position % kKvBlockTokens);
}

// What pack() may need for so many tokens and cache blocks of all sequences together; a block that several share counts for
// each.
[[nodiscard]] std::int64_t most_packed(std::int64_t tokens, std::int64_t logit_rows, std::int64_t blocks);

// Writes the chunks to `to`. `padded_rows`: if not 0, all chunks are single tokens, and rows that compute nothing fill their
// lists (but the tables) up to so many: where each list begins then depends on that number alone. Error: kInternal when `to` is
// too short.
[[nodiscard]] Result<PackedBatch> pack(std::span<const SequenceChunk> chunks, std::int64_t hidden_size, bool logits,
                                       std::int64_t padded_rows, std::span<std::int32_t> to);

}  // namespace windlass::worker::cuda
