// JSON for rare calls, plain bytes for those of every iteration.
#include "worker/parallel/chain_wire.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "metrics/net/host_port.h"
#include "planner/base/fnv.h"
#include "planner/base/shown_json.h"
#include "worker/model/json_input.h"
#include "worker/parallel/kv_wire.h"

namespace windlass::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers go onto the wire as they are");

constexpr std::size_t kSessionBytes = 32;
constexpr std::size_t kChunkBytes = kSessionBytes + 6 * sizeof(std::uint32_t);
constexpr std::size_t kSummaryHeadBytes = 4 * sizeof(std::uint32_t);
// Part of the fingerprint: workers with different versions count as different models.
constexpr std::uint32_t kWireVersion = 2;
constexpr std::int64_t kMaxPositions = 1LL << 28U;

Error wrong(std::string text) { return Error{ErrorCode::kInvalidArgument, std::move(text)}; }

void append_number(std::string& to, std::int64_t number) {
  const auto value = static_cast<std::uint32_t>(number);
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class Number>
Number take(std::string_view& from) {
  static_assert(sizeof(Number) == sizeof(std::uint32_t));
  Number value = 0;
  std::memcpy(&value, from.data(), sizeof(value));
  from.remove_prefix(sizeof(value));
  return value;
}

std::uint32_t take_number(std::string_view& from) { return take<std::uint32_t>(from); }

// Reads a reservation's fields and reports the first error.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object) : object_(object) {}

  std::int64_t number(const char* field, std::int64_t low, std::int64_t high) {
    const auto* value = find(field);
    if (value != nullptr && value->is_number_integer()) {
      // A number beyond int64 is converted to another value, but never to an allowed one.
      const auto found =
          value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX ? -1 : value->get<std::int64_t>();
      if (found >= low && found <= high) return found;
    }
    complain(field, value, fmt::format("a whole number from {} to {}", low, high));
    return low;
  }

  std::string text(const char* field) {
    const auto* value = find(field);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    complain(field, value, "a string");
    return {};
  }

  template <class Good>
  std::vector<std::string> texts(const char* field, std::size_t low, std::size_t high, const char* what, const Good& good) {
    const auto* value = find(field);
    std::vector<std::string> texts;
    if (value != nullptr && value->is_array() && value->size() >= low && value->size() <= high) {
      for (const auto& each : *value) {
        if (!each.is_string() || !good(each.get_ref<const std::string&>())) break;
        texts.push_back(each.get<std::string>());
      }
      if (texts.size() == value->size()) return texts;
    }
    complain(field, value, fmt::format("{} to {} {}", low, high, what));
    return {};
  }

  void complain(const char* field, const nlohmann::json* value, const std::string& allowed) {
    if (complaint_) return;
    complaint_ =
        wrong(fmt::format("reservation: {}: must be {} (got {})", field, allowed, value == nullptr ? "none" : shown(*value)));
  }
  [[nodiscard]] const std::optional<Error>& complaint() const { return complaint_; }

 private:
  [[nodiscard]] const nlohmann::json* find(const char* field) const {
    const auto it = object_.find(field);
    return it == object_.end() ? nullptr : &*it;
  }

  const nlohmann::json& object_;
  std::optional<Error> complaint_;
};

}  // namespace

const char* to_string(ChainVerb verb) {
  switch (verb) {
    case ChainVerb::kReserve: return "reserve";
    case ChainVerb::kStep: return "step";
    case ChainVerb::kRow: return "row";
    case ChainVerb::kKeep: return "keep";
    case ChainVerb::kRelease: return "release";
  }
  return "keep";
}

double patience_s(ChainVerb verb, std::size_t further) {
  const double alone_s = verb == ChainVerb::kStep      ? kChainStepS
                         : verb == ChainVerb::kRow     ? kChainRowS
                         : verb == ChainVerb::kReserve ? kChainReserveS
                                                       : kChainKeepAnswerS;
  return alone_s + kChainHopS * static_cast<double>(further);
}

ChainAnswer sessions_over(std::span<const std::string> sessions) {
  assert(!sessions.empty());
  return {404, "", sessions_text(sessions)};
}

std::vector<std::string> sessions_over(const ChainAnswer& answer) {
  if (answer.status != 404) return {};
  auto names = sessions_from(answer.body);
  return names.ok() ? std::move(names).value() : std::vector<std::string>{};
}

std::size_t max_refusal_bytes(std::size_t sessions) { return std::max(kChainMaxErrorBytes, sessions * (kSessionBytes + 1)); }

ChainModel chain_model(const ModelConfig& config, std::uint64_t weights) {
  Fnv1a hash;
  const auto mix = [&](const auto&... each) { (hash.mix(&each, sizeof(each)), ...); };
  mix(kWireVersion, weights, config.heads, config.kv_heads, config.head_dim, config.intermediate_size, config.norm,
      config.norm_eps, config.norm_after, config.embedding_size, config.positions, config.activation, config.mlp_bias,
      config.experts, config.experts_per_token, config.expert_intermediate_size, config.normalise_expert_weights,
      config.rope_theta, config.rope_scaling.kind, config.rope_scaling.factor, config.rope_scaling.low_freq_factor,
      config.rope_scaling.high_freq_factor, config.rope_scaling.original_max_tokens, config.qkv_bias, config.attention_out_bias,
      config.qk_norm, config.tie_word_embeddings);
  for (const float factor : config.rope_scaling.factors) mix(factor);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::int64_t window = config.window_of(layer);
    const bool has_experts = config.has_experts(layer);
    mix(window, has_experts);
  }
  return {hash.value(), config.layers, config.hidden_size, config.vocab_size};
}

std::string to_json(const ChainReservation& reservation) {
  const nlohmann::ordered_json json = {{"model", fmt::format("{:016x}", reservation.model.fingerprint)},
                                       {"layers", reservation.model.layers},
                                       {"hiddenSize", reservation.model.hidden_size},
                                       {"vocabSize", reservation.model.vocab_size},
                                       {"block", reservation.block},
                                       {"tokens", reservation.tokens},
                                       {"sessions", reservation.sessions},
                                       {"nextHops", reservation.next_hops}};
  return json.dump();
}

Result<ChainReservation> reservation_from_json(std::string_view text) {
  const auto parsed = parse_json(text, kMaxRequestParts);
  if (!parsed.ok() || !parsed->is_object()) {
    return wrong(fmt::format("reservation: must be a JSON object (got {})", parsed.ok() ? shown(*parsed) : "no JSON"));
  }
  Fields fields(*parsed);
  ChainReservation reservation;
  const std::string model = fields.text("model");
  const auto [end, failure] = std::from_chars(model.data(), model.data() + model.size(), reservation.model.fingerprint, 16);
  if (failure != std::errc{} || end != model.data() + model.size() || model.size() != 16) {
    const nlohmann::json found = model;
    fields.complain("model", &found, "16 hexadecimal digits");
  }
  reservation.model.layers = fields.number("layers", 1, 1 << 20);
  reservation.model.hidden_size = fields.number("hiddenSize", 1, 1 << 24);
  reservation.model.vocab_size = fields.number("vocabSize", 1, 1 << 28);
  reservation.block = fields.number("block", 1, 1 << 20);
  reservation.tokens = fields.number("tokens", 1, kMaxPositions);
  reservation.sessions = fields.texts("sessions", 1, kChainMaxSessions, "names of 32 hexadecimal digits", is_session_id);
  reservation.next_hops = fields.texts("nextHops", 0, kChainMaxHops, "addresses HOST:PORT", is_worker_address);
  if (fields.complaint()) return *fields.complaint();
  const std::set<std::string> different(reservation.sessions.begin(), reservation.sessions.end());
  if (different.size() != reservation.sessions.size()) return wrong("reservation: sessions: must be different (got one twice)");
  return reservation;
}

std::string step_head(std::span<const ChainChunk> chunks) {
  std::string head;
  head.reserve(sizeof(std::uint32_t) + chunks.size() * kChunkBytes);
  append_number(head, static_cast<std::int64_t>(chunks.size()));
  for (const ChainChunk& chunk : chunks) {
    head += chunk.session;
    append_number(head, chunk.start);
    append_number(head, chunk.tokens);
    append_number(head, chunk.wants_logits ? 1 : 0);
    append_number(head, chunk.need.likeliest);
    append_number(head, std::bit_cast<std::int32_t>(chunk.need.steepness));
    append_number(head, chunk.keeps_row ? 1 : 0);
  }
  return head;
}

Result<ChainStep> step_from(std::string_view bytes, std::int64_t hidden_size) {
  const std::size_t all = bytes.size();
  if (all < sizeof(std::uint32_t)) return wrong(fmt::format("step: must have at least 4 bytes (got {})", all));
  const std::uint32_t count = take_number(bytes);
  if (count < 1 || count > kChainMaxTokens || bytes.size() / kChunkBytes < count) {
    return wrong(fmt::format("step: must have 1 to {} chunks of {} bytes each (got {} in {} bytes)", kChainMaxTokens,
                             kChunkBytes, count, all));
  }
  ChainStep step;
  std::set<std::string_view> sessions;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view session = bytes.substr(0, kSessionBytes);
    bytes.remove_prefix(kSessionBytes);
    ChainChunk chunk{std::string(session), take_number(bytes), take_number(bytes)};
    const std::uint32_t wants = take_number(bytes);
    chunk.wants_logits = wants == 1;
    const std::uint32_t likeliest = take_number(bytes);
    chunk.need = {static_cast<std::int32_t>(likeliest), take<float>(bytes)};
    const std::uint32_t keeps = take_number(bytes);
    chunk.keeps_row = keeps == 1;
    step.tokens += chunk.tokens;
    if (!is_session_id(session) || chunk.tokens < 1 || step.tokens > kChainMaxTokens || chunk.start > kMaxPositions ||
        wants > 1 || !sessions.insert(session).second) {
      return wrong(
          fmt::format("step: chunk {}: must be the only one of its session, with up to {} tokens in all, wanting 0 or 1 (got "
                      "{} tokens from {}, {} in all, wanting {})",
                      i, kChainMaxTokens, chunk.tokens, chunk.start, step.tokens, wants));
    }
    if (likeliest > kMaxLikeliest || !std::isfinite(chunk.need.steepness) || keeps > 1) {
      return wrong(fmt::format(
          "step: chunk {}: must need up to {} tokens at a finite steepness, keeping 0 or 1 (got {} at {}, keeping {})", i,
          kMaxLikeliest, likeliest, chunk.need.steepness, keeps));
    }
    step.chunks.push_back(std::move(chunk));
  }
  step.head_bytes = all - bytes.size();
  const std::size_t expected = static_cast<std::size_t>(step.tokens * hidden_size) * sizeof(float);
  if (bytes.size() != expected) {
    return wrong(fmt::format("step: must have {} bytes of hidden states, {} tokens of {} numbers (got {})", expected,
                             step.tokens, hidden_size, bytes.size()));
  }
  return step;
}

std::size_t logit_bytes(const ChainChunk& chunk, std::int64_t vocab_size) {
  if (!chunk.wants_logits) return 0;
  if (chunk.need.likeliest == 0) return static_cast<std::size_t>(vocab_size) * sizeof(float);
  return kSummaryHeadBytes + static_cast<std::size_t>(chunk.need.likeliest) * (sizeof(std::int32_t) + sizeof(float));
}

void write_summary(const LogitSummary& summary, const RowNeed& need, char* to) {
  const auto put = [&](const auto* from, std::int32_t count) {
    to = std::copy_n(reinterpret_cast<const char*>(from), static_cast<std::size_t>(count) * sizeof(*from), to);
  };
  put(&summary.count, 1);
  put(&summary.highest, 1);
  put(&summary.total, 1);
  put(&summary.tempered, 1);
  put(summary.ids, need.likeliest);
  put(summary.logits, need.likeliest);
}

Result<LogitSummary> summary_from(std::string_view bytes, const RowNeed& need, std::int64_t vocab_size) {
  const std::size_t expected = logit_bytes({{}, 0, 1, true, need}, vocab_size);
  if (need.likeliest < 1 || bytes.size() != expected)
    return wrong(fmt::format("summary: must have {} bytes (got {})", expected, bytes.size()));
  LogitSummary summary;
  summary.count = take<std::int32_t>(bytes);
  summary.highest = take<float>(bytes);
  summary.total = take<float>(bytes);
  summary.tempered = take<float>(bytes);
  if (summary.count < 0 || summary.count > need.likeliest)
    return wrong(fmt::format("summary: must have up to {} tokens (got {})", need.likeliest, summary.count));
  for (std::int32_t i = 0; i < need.likeliest; ++i) summary.ids[i] = take<std::int32_t>(bytes);
  for (std::int32_t i = 0; i < need.likeliest; ++i) summary.logits[i] = take<float>(bytes);
  for (std::int32_t i = 0; i < summary.count; ++i) {
    const bool follows = i == 0 ? summary.logits[0] == summary.highest : summary.logits[i] <= summary.logits[i - 1];
    if (summary.ids[i] < 0 || summary.ids[i] >= vocab_size || !std::isfinite(summary.logits[i]) || !follows) {
      return wrong(fmt::format("summary: must have tokens from 0 to {}, likeliest first (got {} with the logit {})",
                               vocab_size - 1, summary.ids[i], summary.logits[i]));
    }
  }
  if (!std::isfinite(summary.total) || !std::isfinite(summary.tempered) || summary.total < 0 || summary.tempered < 0)
    return wrong(fmt::format("summary: must have finite sums (got {} and {})", summary.total, summary.tempered));
  return summary;
}

std::size_t max_step_bytes(std::int64_t hidden_size) {
  return sizeof(std::uint32_t) +
         static_cast<std::size_t>(kChainMaxTokens) * (kChunkBytes + static_cast<std::size_t>(hidden_size) * sizeof(float));
}

Result<std::vector<std::string>> hops_from(std::string_view text) {
  std::vector<std::string> hops;
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view one = text.substr(0, comma);
    if (!is_worker_address(one) || hops.size() == kChainMaxHops) {
      return wrong(fmt::format("must be up to {} addresses HOST:PORT, separated by commas (got {})", kChainMaxHops,
                               shown(nlohmann::json(std::string(one)))));
    }
    hops.emplace_back(one);
    if (comma == std::string_view::npos) return hops;
    text.remove_prefix(comma + 1);
  }
}

bool is_worker_address(std::string_view text) {
  const auto address = net::parse_host_port(text);
  return address.ok() && address->port != "0" && std::all_of(address->host.begin(), address->host.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  std::string_view(".-_:").find(c) != std::string_view::npos;
         });
}

std::string new_session_id() {
  std::random_device source;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", source());
  return id;
}

}  // namespace windlass::worker
