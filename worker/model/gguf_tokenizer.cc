// Converts GGUF's token lists to a tokenizer.json.
#include "worker/model/gguf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unicode/utf8.h>

#include "planner/base/foreign_text.h"
#include "worker/model/pretokenizer.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

constexpr std::string_view kSpace = "\u2581";

// tokenizer.ggml.token_type
enum TokenType : std::int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// GPT-2's pattern (Radford et al. 2019). Text that no alternative matches, spaces at the end of a text, forms a piece of its
// own.
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 = kLlama3Pattern.data();
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekkenPattern = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                       R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct PreTokenizer {
  const char* name;
  const char* first;   // patterns that split a text, applied in order
  const char* second;  // null: only one
  bool ignore_merges = false;
};
constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", kGpt2Pattern, nullptr},         {"smollm", R"(\p{N})", kGpt2Pattern},
    {"starcoder", R"(\p{N})", kGpt2Pattern},  {"refact", R"(\p{N})", kGpt2Pattern},
    {"command-r", R"(\p{N})", kGpt2Pattern},  {"llama-bpe", kLlama3, nullptr, true},
    {"llama3", kLlama3, nullptr, true},       {"llama-v3", kLlama3, nullptr, true},
    {"qwen2", kQwen2Pattern, nullptr},        {"deepseek-r1-qwen", kQwen2Pattern, nullptr},
    {"tekken", kTekkenPattern, nullptr, true}};

bool is_utf8(std::string_view text) {
  const auto length = static_cast<std::int32_t>(text.size());
  for (std::int32_t at = 0; at < length;) {
    UChar32 code = 0;
    U8_NEXT(text.data(), at, length, code);
    if (code < 0) return false;
  }
  return true;
}

// What both kinds of vocabulary have in common.
class Tokens {
 public:
  [[nodiscard]] static Result<Tokens> of(const Gguf& gguf) {
    constexpr const char* kField = "tokenizer.ggml.tokens";
    Tokens tokens;
    WINDLASS_ASSIGN_OR_RETURN(tokens.texts_, gguf.texts(kField));
    if (gguf.has("tokenizer.ggml.token_type")) {
      WINDLASS_ASSIGN_OR_RETURN(tokens.types_, gguf.wholes("tokenizer.ggml.token_type"));
      if (tokens.types_->size() != tokens.size()) {
        return gguf.bad("tokenizer.ggml.token_type", fmt::format("{} of them", tokens.types_->size()),
                        fmt::format("as many as tokens ({})", tokens.size()));
      }
    }
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      const std::string_view text = tokens.text(id);
      if (!is_utf8(text) || text.size() > 65535) {
        return gguf.bad(fmt::format("{}[{}]", kField, id), fmt::format("'{}'", shown_text(text)),
                        "UTF-8 of at most 65535 bytes");
      }
      tokens.ids_.emplace(text, id);  // of tokens with equal text, the first is used
    }
    return tokens;
  }

  [[nodiscard]] std::size_t size() const { return texts_->size(); }
  [[nodiscard]] std::string_view text(std::size_t id) const { return (*texts_)[id]; }
  [[nodiscard]] std::int64_t type(std::size_t id) const { return types_ == nullptr ? kNormal : (*types_)[id]; }
  [[nodiscard]] std::optional<std::size_t> id(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] json vocab() const {
    json vocab = json::object();
    for (const auto& [text, id] : ids_) vocab[std::string(text)] = id;
    return vocab;
  }
  // Control tokens and user-defined tokens.
  [[nodiscard]] json added() const {
    json added = json::array();
    for (std::size_t id = 0; id < size(); ++id) {
      const bool control = type(id) == kControl || type(id) == kUnknown;
      if ((!control && type(id) != kUserDefined) || text(id).empty()) continue;
      added.push_back({{"id", id}, {"content", text(id)}, {"special", control}, {"normalized", false}});
    }
    return added;
  }

 private:
  const GgufStrings* texts_ = nullptr;
  const GgufWholes* types_ = nullptr;
  std::unordered_map<std::string_view, std::size_t> ids_;
};

// The id in a field, if it exists.
Result<std::optional<std::size_t>> id_under(const Gguf& gguf, const Tokens& tokens, const char* field) {
  if (!gguf.has(field) || tokens.size() == 0) return std::optional<std::size_t>();
  WINDLASS_ASSIGN_OR_RETURN(const std::int64_t id, gguf.whole(field, 0, static_cast<std::int64_t>(tokens.size()) - 1));
  return std::optional(static_cast<std::size_t>(id));
}

Result<bool> flag_or(const Gguf& gguf, const char* field, bool fallback) {
  return gguf.has(field) ? gguf.flag(field) : Result<bool>(fallback);
}

Result<json> post_processor(const Gguf& gguf, const Tokens& tokens, bool begins) {
  WINDLASS_ASSIGN_OR_RETURN(const bool add_bos, flag_or(gguf, "tokenizer.ggml.add_bos_token", begins));
  WINDLASS_ASSIGN_OR_RETURN(const bool add_eos, flag_or(gguf, "tokenizer.ggml.add_eos_token", false));
  if (add_eos) return gguf.bad("tokenizer.ggml.add_eos_token", "true", "false");
  WINDLASS_ASSIGN_OR_RETURN(const auto bos, id_under(gguf, tokens, "tokenizer.ggml.bos_token_id"));
  if (!add_bos || !bos) return json();
  const std::string text(tokens.text(*bos));
  return json{{"type", "TemplateProcessing"},
              {"single", {{{"SpecialToken", {{"id", text}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
              {"pair", json::array()},
              {"special_tokens", {{text, {{"id", text}, {"ids", {*bos}}, {"tokens", {text}}}}}}};
}

Result<json> by_bytes(const Gguf& gguf, const Tokens& tokens) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string_view name, gguf.text("tokenizer.ggml.pre"));
  const auto* known = std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                                   [&](const PreTokenizer& each) { return each.name == name; });
  if (known == std::end(kPreTokenizers)) {
    std::string allowed;
    for (const PreTokenizer& each : kPreTokenizers) allowed += fmt::format("{}'{}'", allowed.empty() ? "" : ", ", each.name);
    return gguf.bad("tokenizer.ggml.pre", fmt::format("'{}'", shown_text(name)), allowed);
  }
  json steps = json::array();
  for (const char* pattern : {known->first, known->second}) {
    if (pattern == nullptr) continue;
    steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  WINDLASS_ASSIGN_OR_RETURN(const GgufStrings* const merges, gguf.texts("tokenizer.ggml.merges"));
  json list = json::array();
  for (std::size_t i = 0; i < merges->size(); ++i) {
    if (!is_utf8((*merges)[i])) {
      return gguf.bad(fmt::format("tokenizer.ggml.merges[{}]", i), fmt::format("'{}'", shown_text((*merges)[i])), "UTF-8");
    }
    list.push_back((*merges)[i]);
  }
  WINDLASS_ASSIGN_OR_RETURN(json post, post_processor(gguf, tokens, known->first == kLlama3));
  return json{
      {"added_tokens", tokens.added()},
      {"normalizer", known->first == kQwen2Pattern ? json{{"type", "NFC"}} : json()},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}},
      {"post_processor", std::move(post)},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"}, {"vocab", tokens.vocab()}, {"merges", std::move(list)}, {"ignore_merges", known->ignore_merges}}}};
}

// All ways to form a token from two others, ordered by the token's score, then longer parts first. Follows transformers'
// SentencePieceExtractor (convert_slow_tokenizer.py).
Result<json> merges_of_scores(const Gguf& gguf, const Tokens& tokens) {
  WINDLASS_ASSIGN_OR_RETURN(const GgufNumbers* const scores, gguf.numbers("tokenizer.ggml.scores"));
  if (scores->size() != tokens.size()) {
    return gguf.bad("tokenizer.ggml.scores", fmt::format("{} of them", scores->size()),
                    fmt::format("as many as tokens ({})", tokens.size()));
  }
  constexpr std::size_t kLongest = 256;  // longest token, in bytes, formed by merges; limits the work per token
  struct Merge {
    double score;
    std::size_t left_length, right_length;  // in characters
    std::size_t left, right;
  };
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view text = tokens.text(id);
    if (tokens.type(id) != kNormal || text.size() > kLongest) continue;
    const auto characters = [](std::string_view part) {
      return static_cast<std::size_t>(std::count_if(part.begin(), part.end(), [](char c) { return (c & 0xC0) != 0x80; }));
    };
    std::vector<Merge> of_token;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      if ((text[cut] & 0xC0) == 0x80) continue;  // inside a character
      const auto left = tokens.id(text.substr(0, cut)), right = tokens.id(text.substr(cut));
      if (left && right) {
        of_token.push_back({(*scores)[id], characters(text.substr(0, cut)), characters(text.substr(cut)), *left, *right});
      }
    }
    std::sort(of_token.begin(), of_token.end(),
              [](const Merge& a, const Merge& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
    merges.insert(merges.end(), of_token.begin(), of_token.end());
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_length, a.right_length) > std::tie(b.score, b.left_length, b.right_length);
  });
  json list = json::array();
  for (const Merge& merge : merges) list.push_back({tokens.text(merge.left), tokens.text(merge.right)});
  return list;
}

Result<json> by_pieces(const Gguf& gguf, const Tokens& tokens) {
  WINDLASS_ASSIGN_OR_RETURN(json merges, merges_of_scores(gguf, tokens));
  WINDLASS_ASSIGN_OR_RETURN(const bool prefix, flag_or(gguf, "tokenizer.ggml.add_space_prefix", true));
  WINDLASS_ASSIGN_OR_RETURN(json post, post_processor(gguf, tokens, true));
  WINDLASS_ASSIGN_OR_RETURN(const auto unknown, id_under(gguf, tokens, "tokenizer.ggml.unknown_token_id"));
  json normalizers = json::array(), decoders = json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  json model = {
      {"type", "BPE"}, {"vocab", tokens.vocab()}, {"merges", std::move(merges)}, {"byte_fallback", true}, {"fuse_unk", true}};
  if (unknown) model["unk_token"] = tokens.text(*unknown);
  return json{{"added_tokens", tokens.added()},
              {"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}},
              {"pre_tokenizer", nullptr},
              {"post_processor", std::move(post)},
              {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
              {"model", std::move(model)}};
}

}  // namespace

Result<json> tokenizer_json_of(const Gguf& gguf) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string_view kind, gguf.text("tokenizer.ggml.model"));
  WINDLASS_ASSIGN_OR_RETURN(const Tokens tokens, Tokens::of(gguf));
  if (kind == "gpt2") return by_bytes(gguf, tokens);
  if (kind == "llama") return by_pieces(gguf, tokens);
  return gguf.bad("tokenizer.ggml.model", fmt::format("'{}'", shown_text(kind)), "'gpt2' or 'llama'");
}

Result<nlohmann::ordered_json> tokenizer_config_of(const Gguf& gguf) {
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  WINDLASS_ASSIGN_OR_RETURN(const Tokens tokens, Tokens::of(gguf));
  constexpr std::pair<const char*, const char*> kSpecial[] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
                                                              {"tokenizer.ggml.eos_token_id", "eos_token"},
                                                              {"tokenizer.ggml.unknown_token_id", "unk_token"},
                                                              {"tokenizer.ggml.padding_token_id", "pad_token"}};
  for (const auto& [field, name] : kSpecial) {
    WINDLASS_ASSIGN_OR_RETURN(const auto id, id_under(gguf, tokens, field));
    if (id) config[name] = tokens.text(*id);
  }
  constexpr const char* kTemplate = "tokenizer.chat_template";
  if (gguf.has(kTemplate)) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string_view text, gguf.text(kTemplate));
    if (!is_utf8(text)) return gguf.bad(kTemplate, "bytes that are not UTF-8", "UTF-8");
    config["chat_template"] = text;
  }
  return config;
}

}  // namespace windlass::worker
