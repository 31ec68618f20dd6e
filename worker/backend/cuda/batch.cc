// Packs the batch in two passes over the chunks: one counts, one writes.
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

// Counts the entries that the chunks need.
PackedBatch counted(std::span<const SequenceChunk> chunks, std::int64_t hidden_size, bool logits) {
  PackedBatch batch;
  for (const SequenceChunk& chunk : chunks) {
    const std::int64_t tokens = tokens_of(chunk, hidden_size);
    batch.tokens += tokens;
    batch.logit_rows += logits && chunk.wants_logits ? 1 : 0;
    if (tokens == 1) {
      ++batch.decode_rows;
      batch.longest = std::max(batch.longest, chunk.start + 1);
    } else {
      batch.tiles += tiles_of(tokens);
    }
  }
  return batch;
}

std::int64_t table_blocks_of(std::span<const SequenceChunk> chunks, std::int64_t hidden_size) {
  std::int64_t blocks = 0;
  for (const SequenceChunk& chunk : chunks) blocks += blocks_for(chunk.start + tokens_of(chunk, hidden_size));
  return blocks;
}

// Lays the lists out one after the other.
void lay_out(PackedBatch& batch, std::int64_t table_blocks) {
  batch.ids_at = 0;
  batch.positions_at = batch.ids_at + batch.tokens;
  batch.slots_at = batch.positions_at + batch.tokens;
  batch.logit_rows_at = batch.slots_at + batch.tokens;
  batch.needs_at = batch.logit_rows_at + batch.logit_rows;
  batch.decode_rows_at = batch.needs_at + batch.logit_rows * kNeedNumbers;
  batch.tiles_at = batch.decode_rows_at + batch.decode_rows * kDecodeRowNumbers;
  batch.tables_at = batch.tiles_at + batch.tiles * kTileNumbers;
  batch.size = batch.tables_at + table_blocks;
}

// Writes the chunks, one by one, to the batch's lists.
class Writer {
 public:
  Writer(const PackedBatch& batch, std::span<std::int32_t> to)
      : batch_(batch),
        to_(to.data()),
        logit_row_(to_ + batch.logit_rows_at),
        need_(reinterpret_cast<RowNeed*>(to_ + batch.needs_at)),
        decode_row_(reinterpret_cast<DecodeRow*>(to_ + batch.decode_rows_at)),
        tile_(reinterpret_cast<PrefillTile*>(to_ + batch.tiles_at)) {}

  void add(const SequenceChunk& chunk, std::int64_t tokens, bool logits) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t position = chunk.start + t;
      write_token(chunk.tokens.empty() ? 0 : chunk.tokens[static_cast<std::size_t>(t)], number(position),
                  slot_of(chunk.blocks, position));
    }
    const std::int64_t first = row_ - tokens;
    if (tokens == 1) *decode_row_++ = {number(first), number(chunk.start), number(table_)};
    for (std::int64_t t = 0; t < tokens && tokens > 1; t += kPrefillTileRows) {
      *tile_++ = {number(first + t), number(std::min<std::int64_t>(kPrefillTileRows, tokens - t)), number(chunk.start + t),
                  number(table_)};
    }
    if (logits && chunk.wants_logits) {
      *logit_row_++ = number(row_ - 1);
      *need_++ = chunk.need;
    }
    const std::int64_t blocks = blocks_for(chunk.start + tokens);
    std::copy_n(chunk.blocks.begin(), blocks, to_ + batch_.tables_at + table_);
    table_ += blocks;
  }

  // Adds rows that compute nothing.
  void pad() {
    while (row_ < batch_.tokens) {
      *decode_row_++ = {number(row_), -1, 0};
      write_token(0, 0, -1);
    }
    std::fill(logit_row_, to_ + batch_.needs_at, 0);
    std::fill(need_, reinterpret_cast<RowNeed*>(to_ + batch_.decode_rows_at), RowNeed());
  }

 private:
  void write_token(std::int32_t id, std::int32_t position, std::int32_t slot) {
    to_[batch_.ids_at + row_] = id;
    to_[batch_.positions_at + row_] = position;
    to_[batch_.slots_at + row_] = slot;
    ++row_;
  }

  const PackedBatch& batch_;
  std::int32_t* to_;
  std::int32_t* logit_row_;
  RowNeed* need_;
  DecodeRow* decode_row_;
  PrefillTile* tile_;
  std::int64_t row_ = 0;
  std::int64_t table_ = 0;  // where the next chunk's blocks begin
};

}  // namespace

std::int64_t max_packed(std::int64_t tokens, std::int64_t logit_rows, std::int64_t blocks) {
  return tokens * (3 + std::max(kDecodeRowNumbers, kTileNumbers)) + logit_rows * (1 + kNeedNumbers) + blocks;
}

Result<PackedBatch> pack(std::span<const SequenceChunk> chunks, std::int64_t hidden_size, bool logits, std::int64_t padded_rows,
                         std::span<std::int32_t> to) {
  PackedBatch batch = counted(chunks, hidden_size, logits);
  if (padded_rows > 0) {
    assert(batch.tiles == 0 && batch.decode_rows <= padded_rows);
    batch.tokens = batch.decode_rows = padded_rows;
    batch.logit_rows = logits ? padded_rows : 0;
  }
  lay_out(batch, table_blocks_of(chunks, hidden_size));
  if (batch.size > static_cast<std::int64_t>(to.size())) {
    return Error{ErrorCode::kInternal,
                 fmt::format("forward: must have at most {} packed numbers (got {})", to.size(), batch.size)};
  }
  Writer writer(batch, to);
  for (const SequenceChunk& chunk : chunks) writer.add(chunk, tokens_of(chunk, hidden_size), logits);
  writer.pad();
  return batch;
}

}  // namespace windlass::worker::cuda
