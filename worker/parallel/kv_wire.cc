// Converts keys and values to bytes and back.
#include "worker/parallel/kv_wire.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/fnv.h"
#include "planner/base/shown_json.h"
#include "worker/model/json_input.h"

namespace windlass::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers go onto the wire as they are");

constexpr std::size_t kSessionDigits = 32;

Error damaged(std::string text) { return Error{ErrorCode::kInvalidArgument, std::move(text)}; }

}  // namespace

std::size_t kv_piece_bytes(const KvShape& shape, std::int64_t tokens) {
  return kKvPieceHeadBytes + static_cast<std::size_t>(tokens * shape.values) * sizeof(float);
}

KvPieceHead kv_piece_head(const KvRange& range) {
  return {static_cast<std::uint32_t>(range.layer), static_cast<std::uint32_t>(range.start),
          static_cast<std::uint32_t>(range.tokens)};
}

KvRange kv_range_of(const KvPieceHead& head) { return {head.layer, head.start, head.tokens}; }

Result<void> check_kv_piece(const KvRange& range, std::int64_t numbers, const KvShape& shape, std::int64_t prompt_tokens,
                            std::span<const std::int64_t> filled) {
  if (range.layer >= shape.layers) return damaged(fmt::format("layer: must be below {} (got {})", shape.layers, range.layer));
  const std::int64_t end = filled[static_cast<std::size_t>(range.layer)];
  if (range.tokens < 1 || range.start != end || range.start + range.tokens > prompt_tokens) {
    return damaged(fmt::format("positions: must be 1 to {} from {} (got {} from {})", prompt_tokens - end, end, range.tokens,
                               range.start));
  }
  if (numbers < range.tokens * shape.values)
    return damaged(fmt::format("must have {} numbers (got {})", range.tokens * shape.values, numbers));
  return {};
}

Result<std::int64_t> store_kv_pieces(std::string_view bytes, std::int64_t prompt_tokens, std::span<const std::int32_t> blocks,
                                     std::span<std::int64_t> filled, Backend& backend) {
  const KvShape shape = backend.kv_shape();
  std::int64_t pieces = 0;
  std::vector<float> values;
  for (; !bytes.empty(); ++pieces) {
    KvPieceHead head{};
    if (bytes.size() < sizeof(head))
      return damaged(fmt::format("piece {}: must have a complete head (got {} bytes)", pieces, bytes.size()));
    std::memcpy(&head, bytes.data(), sizeof(head));
    bytes.remove_prefix(sizeof(head));
    const KvRange range = kv_range_of(head);
    const auto numbers = static_cast<std::int64_t>(bytes.size() / sizeof(float));
    if (const auto good = check_kv_piece(range, numbers, shape, prompt_tokens, filled); !good.ok())
      return good.error().within(fmt::format("piece {}", pieces));
    const std::size_t size = kv_piece_bytes(shape, range.tokens) - kKvPieceHeadBytes;
    values.resize(size / sizeof(float));
    std::memcpy(values.data(), bytes.data(), size);
    bytes.remove_prefix(size);
    backend.write_kv(range, blocks, values.data());
    filled[static_cast<std::size_t>(range.layer)] += range.tokens;
  }
  return pieces;
}

std::string kv_prompt_hash(std::span<const std::int32_t> prompt, std::uint64_t model) {
  Fnv1a hash;
  hash.mix(&model, sizeof(model));
  hash.mix(prompt.data(), prompt.size_bytes());
  return fmt::format("{:016x}", hash.value());
}

std::string first_token_text(const Sampled& first) {
  nlohmann::ordered_json top = nlohmann::ordered_json::array();
  for (const TokenLogprob& each : first.top) top.push_back({each.id, each.logprob});
  return nlohmann::ordered_json{{"id", first.id}, {"logprob", first.logprob}, {"top", std::move(top)}}.dump();
}

Result<Sampled> first_token_from(std::string_view text, std::int64_t vocab_size) {
  const Error wrong =
      damaged(fmt::format("first token: must be an object with id, logprob and top (got {})", text.substr(0, 200)));
  const auto parsed = parse_json(text, kMaxRequestParts);
  if (!parsed.ok() || !parsed->is_object()) return wrong;
  const auto id_of = [&](const nlohmann::json& value) -> std::optional<std::int32_t> {
    if (!value.is_number_integer()) return std::nullopt;
    const auto id = value.get<std::int64_t>();
    if (id < 0 || id >= vocab_size) return std::nullopt;
    return static_cast<std::int32_t>(id);
  };
  Sampled first;
  const auto id = parsed->contains("id") ? id_of(parsed->at("id")) : std::nullopt;
  if (!id || !parsed->contains("logprob") || !parsed->at("logprob").is_number() || !parsed->contains("top") ||
      !parsed->at("top").is_array()) {
    return wrong;
  }
  first.id = *id;
  first.logprob = parsed->at("logprob").get<double>();
  for (const auto& each : parsed->at("top")) {
    if (!each.is_array() || each.size() != 2 || !id_of(each[0]) || !each[1].is_number()) return wrong;
    first.top.push_back({*id_of(each[0]), each[1].get<double>()});
  }
  return first;
}

std::string sessions_text(std::span<const std::string> sessions) {
  std::string text;
  for (const std::string& each : sessions) {
    if (!text.empty()) text += ',';
    text += each;
  }
  return text;
}

std::string session_in_log(std::string_view session) { return std::string(session.substr(0, 6)) + "..."; }

bool is_session_id(std::string_view text) {
  return text.size() == kSessionDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<std::vector<std::string>> sessions_from(std::string_view text) {
  std::vector<std::string> sessions;
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view one = text.substr(0, comma);
    if (!is_session_id(one)) {
      return damaged(fmt::format("session: must be {} hexadecimal digits (got {})", kSessionDigits,
                                 shown(nlohmann::json(std::string(one)))));
    }
    sessions.emplace_back(one);
    if (comma == std::string_view::npos) return sessions;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace windlass::worker
