// One pass over the chunks counts, another writes.
#include "worker/backend/cuda/batch.h"

#include <algorithm>
#include <cassert>

#include <fmt/core.h>

#include "worker/backend/cuda/kernels.h"

namespace windlass::worker::cuda {
namespace {

static_assert(kCacheBlockTokens == kKvBlockTokens);
constexpr std::int64_t kDecodeRowNumbers = sizeof(DecodeRow) / sizeof(std::int32_t);
constexpr std::int64_t kNeedNumbers = sizeof(RowNeed) / sizeof(std::int32_t);
constexpr std::int64_t kTileNumbers = sizeof(PrefillTile) / sizeof(std::int32_t);

std::int32_t number(std::int64_t value) { return static_cast<std::int32_t>(value); }

std::int64_t tiles_of(std::int64_t tokens) { return (tokens + kPrefillTileRows - 1) / kPrefillTileRows; }

}  // namespace

std::int64_t most_packed(std::int64_t tokens, std::int64_t logit_rows, std::int64_t blocks) {
  return tokens * (3 + std::max(kDecodeRowNumbers, kTileNumbers)) + logit_rows * (1 + kNeedNumbers) + blocks;
}

Result<PackedBatch> pack(std::span<const SequenceChunk> chunks, std::int64_t hidden_size, bool logits, std::int64_t padded_rows,
                         std::span<std::int32_t> to) {
  PackedBatch batch;
  std::int64_t table_blocks = 0;
  for (const SequenceChunk& chunk : chunks) {
    const std::int64_t tokens = tokens_of(chunk, hidden_size);
    batch.tokens += tokens;
    batch.logit_rows += logits && chunk.wants_logits ? 1 : 0;
    table_blocks += blocks_for(chunk.start + tokens);
    if (tokens == 1) {
      ++batch.decode_rows;
      batch.longest = std::max(batch.longest, chunk.start + 1);
    } else {
      batch.tiles += tiles_of(tokens);
    }
  }
  if (padded_rows > 0) {
    assert(batch.tiles == 0 && batch.decode_rows <= padded_rows);
    batch.tokens = batch.decode_rows = padded_rows;
    batch.logit_rows = logits ? padded_rows : 0;
  }
  batch.ids_at = 0;
  batch.positions_at = batch.ids_at + batch.tokens;
  batch.slots_at = batch.positions_at + batch.tokens;
  batch.logit_rows_at = batch.slots_at + batch.tokens;
  batch.needs_at = batch.logit_rows_at + batch.logit_rows;
  batch.decode_rows_at = batch.needs_at + batch.logit_rows * kNeedNumbers;
  batch.tiles_at = batch.decode_rows_at + batch.decode_rows * kDecodeRowNumbers;
  batch.tables_at = batch.tiles_at + batch.tiles * kTileNumbers;
  batch.size = batch.tables_at + table_blocks;
  if (batch.size > static_cast<std::int64_t>(to.size())) {
    return Error{ErrorCode::kInternal,
                 fmt::format("forward: found a batch of {} numbers, allowed are {}", batch.size, to.size())};
  }
  std::int32_t* ids = to.data() + batch.ids_at;
  std::int32_t* positions = to.data() + batch.positions_at;
  std::int32_t* slots = to.data() + batch.slots_at;
  std::int32_t* logit_row = to.data() + batch.logit_rows_at;
  auto* need = reinterpret_cast<RowNeed*>(to.data() + batch.needs_at);
  auto* decode_row = reinterpret_cast<DecodeRow*>(to.data() + batch.decode_rows_at);
  auto* tile = reinterpret_cast<PrefillTile*>(to.data() + batch.tiles_at);
  std::int32_t* const tables = to.data() + batch.tables_at;
  std::int64_t row = 0;
  std::int64_t table = 0;
  for (const SequenceChunk& chunk : chunks) {
    const std::int64_t tokens = tokens_of(chunk, hidden_size);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t position = chunk.start + t;
      ids[row + t] = chunk.tokens.empty() ? 0 : chunk.tokens[static_cast<std::size_t>(t)];
      positions[row + t] = number(position);
      slots[row + t] = slot_of(chunk.blocks, position);
    }
    if (tokens == 1) *decode_row++ = {number(row), number(chunk.start), number(table)};
    for (std::int64_t t = 0; t < tokens && tokens > 1; t += kPrefillTileRows) {
      *tile++ = {number(row + t), number(std::min<std::int64_t>(kPrefillTileRows, tokens - t)), number(chunk.start + t),
                 number(table)};
    }
    row += tokens;
    if (logits && chunk.wants_logits) {
      *logit_row++ = number(row - 1);
      *need++ = chunk.need;
    }
    const std::int64_t blocks = blocks_for(chunk.start + tokens);
    std::copy_n(chunk.blocks.begin(), blocks, tables + table);
    table += blocks;
  }
  for (; row < batch.tokens; ++row) {
    ids[row] = positions[row] = 0;
    slots[row] = -1;
    *decode_row++ = {number(row), -1, 0};
  }
  std::fill(logit_row, to.data() + batch.needs_at, 0);
  std::fill(need, reinterpret_cast<RowNeed*>(to.data() + batch.decode_rows_at), RowNeed());
  return batch;
}

}  // namespace windlass::worker::cuda
