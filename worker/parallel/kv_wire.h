// Wire format of keys and values: consecutive pieces, each with three 32-bit numbers (layer, first position, number of
// positions) and then the floats of Backend::read_kv(). Little-endian. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/engine/sampler.h"

namespace windlass::worker {

struct KvPieceHead {
  std::uint32_t layer, start, tokens;
};
inline constexpr std::size_t kKvPieceHeadBytes = sizeof(KvPieceHead);
[[nodiscard]] KvPieceHead kv_piece_head(const KvRange& range);
[[nodiscard]] KvRange kv_range_of(const KvPieceHead& head);
// Limits of an answer: bytes of pieces (a single piece may be larger), and the longest wait.
inline constexpr std::size_t kKvMaxBytes = 8U << 20U;
inline constexpr double kKvLongestWaitS = 1;

// Bytes of a piece with this many positions.
[[nodiscard]] std::size_t kv_piece_bytes(const KvShape& shape, std::int64_t tokens);

// Whether this piece, with this many numbers, may come next. `filled` as below. Error: kInvalidArgument.
[[nodiscard]] Result<void> check_kv_piece(const KvRange& range, std::int64_t numbers, const KvShape& shape,
                                          std::int64_t prompt_tokens, std::span<const std::int64_t> filled);

// Writes all pieces to the cache and returns their number. `filled` (layers): positions present in each layer, from the first
// on; updated. Error: kInvalidArgument, before the bad piece is written, if a piece has an unknown layer, does not start where
// its layer ended, exceeds the prompt or is truncated.
[[nodiscard]] Result<std::int64_t> store_kv_pieces(std::string_view bytes, std::int64_t prompt_tokens,
                                                   std::span<const std::int32_t> blocks, std::span<std::int64_t> filled,
                                                   Backend& backend);

// Hash (FNV-1a, 16 hexadecimal digits) of a prompt's token ids and the model (TensorStore::fingerprint()). Detects two workers
// that serve different models or understood a request differently.
[[nodiscard]] std::string kv_prompt_hash(std::span<const std::int32_t> prompt, std::uint64_t model);

// The first token as JSON, with its log probabilities: {"id":7,"logprob":-0.5,"top":[[7,-0.5],[3,-1.25]]}.
[[nodiscard]] std::string first_token_text(const Sampled& first);
// Error: kInvalidArgument naming the value, also for an id that is not below `vocab_size`.
[[nodiscard]] Result<Sampled> first_token_from(std::string_view text, std::int64_t vocab_size);

// The value of X-Windlass-Prefilled: the sessions of a request's choices, in order.
[[nodiscard]] std::string sessions_text(std::span<const std::string> sessions);
// Error: kInvalidArgument if a name is not a session's (32 hexadecimal digits).
[[nodiscard]] Result<std::vector<std::string>> sessions_from(std::string_view text);
[[nodiscard]] bool is_session_id(std::string_view text);
// A shortened name for logs, because the full name gives access to the keys and values.
[[nodiscard]] std::string session_in_log(std::string_view session);

}  // namespace windlass::worker
