// PackedBatch: everything that the kernels of one forward pass need to know about its chunks, in one array, sent to the device
// in one copy.
//
// Single tokens (decode) and pieces of prompts (prefill) are listed separately, because different attention kernels process
// them; all other kernels treat tokens alike. Pure functions over the caller's memory.
#pragma once

#include <cstdint>
#include <span>

#include "planner/base/result.h"
#include "worker/backend/backend.h"

namespace windlass::worker::cuda {

// The length of each list, and its offset in the array in units of 4 bytes.
struct PackedBatch {
  std::int64_t tokens = 0;       // ids, positions, slots: one of each per token
  std::int64_t decode_rows = 0;  // DecodeRow
  std::int64_t tiles = 0;        // PrefillTile
  std::int64_t logit_rows = 0;   // rows of tokens
  std::int64_t longest = 0;      // longest context of a decode row, in tokens

  std::int64_t ids_at = 0;
  std::int64_t positions_at = 0;
  std::int64_t slots_at = 0;
  std::int64_t logit_rows_at = 0;
  std::int64_t needs_at = 0;  // RowNeed, one per logit row
  std::int64_t decode_rows_at = 0;
  std::int64_t tiles_at = 0;
  std::int64_t tables_at = 0;
  std::int64_t size = 0;
};

// A sequence position's place in a layer's cache: RopeStore::slots.
[[nodiscard]] inline std::int32_t slot_of(std::span<const std::int32_t> blocks, std::int64_t position) {
  return static_cast<std::int32_t>(blocks[static_cast<std::size_t>(position / kKvBlockTokens)] * kKvBlockTokens +
                                   position % kKvBlockTokens);
}

// Upper bound of pack()'s size for this many tokens and cache blocks of all sequences; a shared block counts once per sequence.
[[nodiscard]] std::int64_t max_packed(std::int64_t tokens, std::int64_t logit_rows, std::int64_t blocks);

// Writes the chunks to `to`. `padded_rows`: if not 0, all chunks must be single tokens, and their lists (except tables) are
// padded with rows that compute nothing, so that the offsets depend only on that number. Error: kInternal if `to` is too short.
[[nodiscard]] Result<PackedBatch> pack(std::span<const SequenceChunk> chunks, std::int64_t hidden_size, bool logits,
                                       std::int64_t padded_rows, std::span<std::int32_t> to);

}  // namespace windlass::worker::cuda
