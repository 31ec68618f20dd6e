// Applies steps in the order of Hugging Face's library: added tokens, normalizer, added tokens marked "normalized",
// pretokenizer, model.
#include "worker/model/tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "worker/model/files.h"
#include "worker/model/gguf_model.h"
#include "worker/model/gguf_tokenizer.h"
#include "worker/model/tokenizer_json.h"

namespace windlass::worker {

struct Tokenizer::Impl {
  // Whether the token found at a position of the whole text is ordinary text.
  using IsText = std::function<bool(const AddedToken&, std::size_t, std::size_t)>;

  AddedTokens added;             // before the normalizer
  AddedTokens added_normalized;  // after it
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  Bpe model;
  TokenDecoder decoder;
  std::vector<std::int32_t> prefix;
  std::unordered_map<std::string, std::int32_t> by_content;  // added tokens
  std::unordered_map<std::int32_t, std::string> special;
  std::vector<std::string> bytes;                       // by id
  std::unordered_map<std::int32_t, std::string> first;  // for tokens with spaces that are not the decoder's symbol
  std::size_t longest = 0;                              // most bytes that one token can stand for
  bool shortens = false;                                // a text may have fewer tokens than its size suggests

  void set_bytes(std::int32_t id, const std::string& token, bool is_added);
  [[nodiscard]] std::string first_bytes(std::int32_t id) const;
  void take_added(const std::vector<AddedToken>& tokens);
  void encode_pieces(std::string_view text, bool first, std::vector<std::int32_t>& out) const;
  void encode_plain(std::string_view text, std::size_t at, bool first, const IsText& is_text,
                    std::vector<std::int32_t>& out) const;
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, bool continues, const IsText& is_text) const;
};

void Tokenizer::Impl::set_bytes(std::int32_t id, const std::string& token, bool is_added) {
  bytes[static_cast<std::size_t>(id)] = decoder.bytes_of(token, is_added);
  if (token.find(' ') != std::string::npos) first[id] = decoder.bytes_of(token, is_added, true);
}

// The bytes of a token at the beginning of a text, where the decoder drops spaces.
std::string Tokenizer::Impl::first_bytes(std::int32_t id) const {
  if (const auto found = first.find(id); found != first.end()) return found->second;
  if (id < 0 || static_cast<std::size_t>(id) >= bytes.size()) return {};
  std::string text = bytes[static_cast<std::size_t>(id)];
  std::erase(text, ' ');
  return text;
}

void Tokenizer::Impl::take_added(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) {
    std::string text = token.content;
    if (token.normalized && !(token.special && normalizer.prepends())) {
      text = normalizer.normalize(text, false).text;
      added_normalized.add(text, token);
    } else {
      added.add(text, token);
    }
    by_content.try_emplace(token.content, token.id);
    if (token.special) special.try_emplace(token.id, token.content);
    // A special token is structure, not text: it decodes to nothing.
    set_bytes(token.id, token.special ? "" : text, true);
    longest = std::max(longest, token.content.size());
    shortens = shortens || token.lstrip || token.rstrip;
  }
}

void Tokenizer::Impl::encode_pieces(std::string_view text, bool first, std::vector<std::int32_t>& out) const {
  const Pretokenizer::Pieces pieces = pretokenizer.split(text, first);
  for (const std::string_view piece : pieces.list) model.encode(piece, out);
}

// `at`: offset of this text in the whole. `first`: it begins the whole.
void Tokenizer::Impl::encode_plain(std::string_view text, std::size_t at, bool first, const IsText& is_text,
                                   std::vector<std::int32_t>& out) const {
  if (text.empty()) return;
  if (normalizer.empty() && added_normalized.empty()) return encode_pieces(text, first, out);
  const AlignedText normal = normalizer.normalize(text, !added_normalized.empty());
  const auto in_whole = [&](const AddedToken& token, std::size_t begin, std::size_t end) {
    const std::size_t source_end = end < normal.origins.size() ? normal.origins[end] : text.size();
    return is_text(token, at + normal.origins[begin], at + std::max<std::size_t>(source_end, normal.origins[end - 1] + 1U));
  };
  std::size_t done = 0;
  for (const AddedTokens::Found& found : added_normalized.find(normal.text, in_whole)) {
    if (found.begin > done)
      encode_pieces(std::string_view(normal.text).substr(done, found.begin - done), first && done == 0, out);
    out.push_back(found.id);
    done = found.end;
  }
  encode_pieces(std::string_view(normal.text).substr(done), first && done == 0, out);
}

std::vector<std::int32_t> Tokenizer::Impl::encode(std::string_view text, bool continues, const IsText& is_text) const {
  std::vector<std::int32_t> out;
  std::size_t done = 0;
  for (const AddedTokens::Found& found : added.find(text, is_text)) {
    if (found.begin > done) encode_plain(text.substr(done, found.begin - done), done, done == 0 && !continues, is_text, out);
    out.push_back(found.id);
    done = found.end;
  }
  encode_plain(text.substr(done), done, done == 0 && !continues, is_text, out);
  return out;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& file) {
  WINDLASS_ASSIGN_OR_RETURN(TokenizerSpec spec, parse_tokenizer_json(json, file));
  const auto in_file = [&](const Error& error) { return error.within(file); };
  // Work on bytes where that equals characters of the byte alphabet; it is faster.
  const bool raw_bytes = !spec.pretokenizer.empty() && spec.pretokenizer.back().kind == PretokenizerStep::Kind::kByteLevel &&
                         !spec.model.byte_fallback && spec.model.subword_prefix.empty() && spec.model.word_suffix.empty();
  std::unordered_set<std::string_view> markers;
  for (const AddedToken& token : spec.added) {
    if (token.is_marker()) markers.insert(token.content);
  }
  auto normalizer = Normalizer::make(std::move(spec.normalizer));
  if (!normalizer.ok()) return in_file(normalizer.error());
  auto pretokenizer = Pretokenizer::make(std::move(spec.pretokenizer), raw_bytes);
  if (!pretokenizer.ok()) return in_file(pretokenizer.error());
  auto model = Bpe::make(spec.model, raw_bytes, [&](const std::string& token) { return markers.contains(token); });
  if (!model.ok()) return in_file(model.error());
  auto decoder = TokenDecoder::make(std::move(spec.decoder));
  if (!decoder.ok()) return in_file(decoder.error());

  auto impl = std::make_unique<Impl>();
  impl->normalizer = std::move(normalizer).value();
  impl->pretokenizer = std::move(pretokenizer).value();
  impl->model = std::move(model).value();
  impl->decoder = std::move(decoder).value();
  impl->shortens =
      !impl->model.complete() || impl->normalizer.shortens() || impl->pretokenizer.removes() || impl->decoder.shortens();
  std::int32_t largest = -1;
  for (const auto& [token, id] : spec.model.vocab) largest = std::max(largest, id);
  for (const AddedToken& token : spec.added) largest = std::max(largest, token.id);
  for (const std::int32_t id : spec.prefix) {
    if (id > largest) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: post_processor: token id: must be at most {} (got {})", file, largest, id)};
    }
  }
  impl->bytes.resize(static_cast<std::size_t>(largest + 1));
  for (const auto& [token, id] : spec.model.vocab) {
    impl->set_bytes(id, token, false);
    impl->longest = std::max(impl->longest, impl->bytes[static_cast<std::size_t>(id)].size());
  }
  impl->take_added(spec.added);
  impl->prefix = std::move(spec.prefix);
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& model) {
  WINDLASS_ASSIGN_OR_RETURN(const auto parts, gguf_files_of(model));
  if (!parts.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(const GgufModel gguf, GgufModel::open({parts.front()}));
    WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json json, tokenizer_json_of(gguf.gguf));
    return parse(json.dump(), parts.front().string() + ": as tokenizer.json");
  }
  const auto path = model / "tokenizer.json";
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  return parse(text, path.string());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialText special, bool continues) const {
  return impl_->encode(text, continues, [&](const AddedToken& token, std::size_t, std::size_t) {
    return token.special && special == SpecialText::kLiteral;
  });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, const std::function<bool(std::size_t)>& typed) const {
  return impl_->encode(text, false, [&](const AddedToken& token, std::size_t begin, std::size_t end) {
    if (!token.is_marker()) return false;
    for (std::size_t i = begin; i < end; ++i) {
      if (typed(i)) return true;
    }
    return false;
  });
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= impl_->bytes.size()) return {};
  return impl_->bytes[static_cast<std::size_t>(id)];
}

std::string_view Tokenizer::special_text(std::int32_t id) const {
  const auto found = impl_->special.find(id);
  return found == impl_->special.end() ? std::string_view() : found->second;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool with_special) const {
  std::string out;
  bool first = true;
  for (const std::int32_t id : ids) {
    const std::string_view special = special_text(id);
    if (!special.empty() && !with_special) continue;
    const std::string_view bytes = special.empty() ? token_bytes(id) : special;
    const bool drops = first && special.empty() && impl_->decoder.drops_first_spaces();
    out += drops ? impl_->first_bytes(id) : std::string(bytes);
    first = false;
  }
  impl_->decoder.finish(out);
  return out;
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  const auto found = impl_->by_content.find(std::string(content));
  return found == impl_->by_content.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<std::int32_t>& Tokenizer::prefix() const { return impl_->prefix; }

std::int64_t Tokenizer::least_tokens(std::size_t bytes) const {
  if (impl_->shortens || impl_->longest == 0) return 0;
  return static_cast<std::int64_t>(bytes / impl_->longest);
}

std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(impl_->bytes.size()); }

}  // namespace windlass::worker
