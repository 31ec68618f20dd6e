// Merging by rank over a linked list with a heap: a piece of n bytes takes O(n log n), so that a hostile prompt of one endless
// word costs no more than an honest one.
#include "worker/model/tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include <fmt/core.h>
#include <unicode/utf8.h>

#include "worker/model/files.h"
#include "worker/model/gguf_model.h"
#include "worker/model/gguf_tokenizer.h"
#include "worker/model/pretokenizer.h"
#include "worker/model/tokenizer_json.h"

namespace windlass::worker {
namespace {

std::string utf8_of(std::uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3FU))};  // the alphabet ends at U+0143
}

// Maps text in the byte alphabet back to bytes; nothing when a character is outside it.
std::optional<std::string> bytes_of(std::string_view text) {
  static const auto* const kBytes = [] {
    auto* map = new std::unordered_map<std::string, char>();
    for (std::size_t byte = 0; byte < 256; ++byte) map->emplace(byte_alphabet()[byte], static_cast<char>(byte));
    return map;
  }();
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = (static_cast<unsigned char>(text[i]) & 0x80U) == 0 ? 1 : 2;
    const auto it = kBytes->find(std::string(text.substr(i, length)));
    if (it == kBytes->end()) return std::nullopt;
    out += it->second;
    i += length;
  }
  return out;
}

// Of the character that the text begins with; 1 where its bytes are no UTF-8. 0 for an empty text.
std::size_t character_bytes(std::string_view text) {
  std::int32_t end = 0;
  const auto length = static_cast<std::int32_t>(std::min<std::size_t>(text.size(), 4));
  if (length == 0) return 0;
  UChar32 code = 0;
  U8_NEXT(text.data(), end, length, code);
  return code < 0 ? 1 : static_cast<std::size_t>(end);
}

// What a token of SentencePiece's vocabulary stands for: "<0x41>" for a byte, U+2581 for a space.
std::optional<std::string> sentence_bytes(std::string_view token) {
  if (token.size() == 6 && token.starts_with("<0x") && token.back() == '>') {
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    if (error == std::errc() && end == token.data() + 5) return std::string(1, static_cast<char>(byte));
  }
  std::string out;
  while (!token.empty()) {
    const bool space = token.starts_with(kSpaceSymbol);
    out += space ? ' ' : token.front();
    token.remove_prefix(space ? kSpaceSymbol.size() : 1);
  }
  return out;
}

struct Merge {
  std::int32_t rank;
  std::int32_t result;
};

std::uint64_t pair_key(std::int32_t a, std::int32_t b) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32U) | static_cast<std::uint32_t>(b);
}

}  // namespace

const std::vector<std::string>& byte_alphabet() {
  static const auto* const kAlphabet = [] {
    auto* alphabet = new std::vector<std::string>(256);
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      (*alphabet)[byte] = utf8_of(printable ? byte : next++);
    }
    return alphabet;
  }();
  return *kAlphabet;
}

struct Tokenizer::Impl {
  Symbols symbols = Symbols::kBytes;
  std::array<std::int32_t, 256> byte_ids{};  // -1: the vocabulary has no token for it
  std::int32_t unknown = -1;                 // the token of such a byte; -1: it is left out
  bool fuse_unknown = false;
  std::unordered_map<std::string, std::int32_t> characters;  // SentencePiece's tokens of one character
  std::unordered_map<std::uint64_t, Merge> merges;
  std::unordered_map<std::string, std::int32_t> whole_pieces;  // as pieces are; filled when ignore_merges
  std::vector<std::string> bytes;                              // by id
  std::vector<AddedToken> added;                               // longest first, so that the longest match wins
  std::unordered_map<std::string, const AddedToken*> by_content;
  std::unordered_map<std::int32_t, const AddedToken*> special;
  std::size_t longest = 0;                                  // bytes that one token may stand for
  std::array<std::vector<std::size_t>, 256> added_lengths;  // of those that begin with this byte, the longest first
  std::optional<Pretokenizer> pretokenizer;                 // of bytes alone
  SpacePrefix space_prefix = SpacePrefix::kNever;
  bool split_words = false;
  bool strip_space = false;
  std::vector<std::int32_t> prefix;
  bool nfc = false;

  [[nodiscard]] std::vector<std::int32_t> symbols_of(std::string_view piece) const;
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& out) const;
  void encode_sentence(std::string_view text, bool first, std::vector<std::int32_t>& out) const;
  void encode_plain(std::string_view text, bool first, std::vector<std::int32_t>& out) const;
  template <class IsText>
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, bool continues, IsText is_text) const;
  [[nodiscard]] Result<void> take_vocab(const TokenizerSpec& spec, std::unordered_map<std::string, std::int32_t>& by_text);
};

std::vector<std::int32_t> Tokenizer::Impl::symbols_of(std::string_view piece) const {
  std::vector<std::int32_t> ids;
  ids.reserve(piece.size());
  bool after_unknown = false;
  const auto take_byte = [&](char c) {
    const std::int32_t id = byte_ids[static_cast<unsigned char>(c)];
    if (id < 0 && unknown < 0) return;
    if (id >= 0 || !after_unknown || !fuse_unknown) ids.push_back(id >= 0 ? id : unknown);
    after_unknown = id < 0;
  };
  for (std::size_t at = 0; at < piece.size();) {
    if (symbols == Symbols::kCharacters) {
      const std::string character(piece.substr(at, character_bytes(piece.substr(at))));
      if (const auto found = characters.find(character); found != characters.end()) {
        ids.push_back(found->second);
        after_unknown = false;
        at += character.size();
        continue;
      }
      for (std::size_t rest = character.size() - 1; rest > 0; --rest) take_byte(piece[at++]);
    }
    take_byte(piece[at++]);
  }
  return ids;
}

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (const auto whole = whole_pieces.find(std::string(piece)); whole != whole_pieces.end())
    return out.push_back(whole->second);
  struct Node {
    std::int32_t id;
    std::int32_t prev;
    std::int32_t next;  // -1: none
  };
  const std::vector<std::int32_t> ids = symbols_of(piece);
  const auto n = static_cast<std::int32_t>(ids.size());
  std::vector<Node> nodes(ids.size());
  for (std::int32_t i = 0; i < n; ++i) nodes[i] = {ids[i], i - 1, i + 1 < n ? i + 1 : -1};
  // (rank, left position, left id, right id): the lowest rank first, the leftmost of equals. An entry whose ids no longer stand
  // there is stale and skipped.
  using Entry = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || nodes[left].next < 0) return;
    const std::int32_t a = nodes[left].id;
    const std::int32_t b = nodes[nodes[left].next].id;
    if (const auto it = merges.find(pair_key(a, b)); it != merges.end()) heap.emplace(it->second.rank, left, a, b);
  };
  for (std::int32_t i = 0; i + 1 < n; ++i) offer(i);
  while (!heap.empty()) {
    const auto [rank, left, a, b] = heap.top();
    heap.pop();
    const std::int32_t right = nodes[left].next;
    if (nodes[left].id != a || right < 0 || nodes[right].id != b) continue;
    nodes[left].id = merges.at(pair_key(a, b)).result;
    nodes[left].next = nodes[right].next;
    if (nodes[right].next >= 0) nodes[nodes[right].next].prev = left;
    nodes[right].id = -1;  // gone: no entry matches it any more
    offer(nodes[left].prev);
    offer(left);
  }
  for (std::int32_t i = 0; i >= 0 && i < n; i = nodes[i].next) out.push_back(nodes[i].id);
}

void Tokenizer::Impl::encode_sentence(std::string_view text, bool first, std::vector<std::int32_t>& out) const {
  std::string spaced;
  const bool has_one = text.starts_with(' ') || text.starts_with(kSpaceSymbol);
  const bool prefixed = space_prefix == SpacePrefix::kEvery || (space_prefix == SpacePrefix::kAlways && !has_one) ||
                        (space_prefix == SpacePrefix::kFirst && first && !has_one);
  if (prefixed) spaced += kSpaceSymbol;
  for (const char c : text) {
    if (c == ' ') {
      spaced += kSpaceSymbol;
    } else {
      spaced += c;
    }
  }
  for (std::size_t from = 0; from < spaced.size();) {
    const std::size_t next = split_words ? spaced.find(kSpaceSymbol, from + 1) : std::string::npos;
    const std::size_t end = std::min(next, spaced.size());
    encode_piece(std::string_view(spaced).substr(from, end - from), out);
    from = end;
  }
}

// `first`: the text begins the whole.
void Tokenizer::Impl::encode_plain(std::string_view text, bool first, std::vector<std::int32_t>& out) const {
  if (text.empty()) return;
  if (symbols == Symbols::kCharacters) return encode_sentence(text, first, out);
  const std::string normal = nfc ? normalize_nfc(text) : std::string();
  for (const std::string_view piece : pretokenizer->split(nfc ? std::string_view(normal) : text)) encode_piece(piece, out);
}

// What each token of the vocabulary stands for, and the bytes; of SentencePiece all 256 must be there.
Result<void> Tokenizer::Impl::take_vocab(const TokenizerSpec& spec, std::unordered_map<std::string, std::int32_t>& by_text) {
  const auto complaint = [&](std::string text) { return Error{ErrorCode::kInvalidArgument, std::move(text)}; };
  std::unordered_set<std::string_view> is_added;
  for (const AddedToken& token : spec.added) is_added.insert(token.content);
  for (const auto& [token, id] : spec.vocab) {
    if (is_added.contains(token)) continue;  // some files list added tokens in both places; they are no pieces
    auto text = symbols == Symbols::kBytes ? bytes_of(token) : sentence_bytes(token);
    if (!text || text->empty()) {
      return complaint(
          fmt::format("model.vocab: token '{}' (id {}): found characters outside the byte-level alphabet, allowed are "
                      "the 256 of GPT-2",
                      token, id));
    }
    if (symbols == Symbols::kCharacters && character_bytes(token) == token.size()) characters.emplace(token, id);
    by_text.emplace(token, id);
    if (spec.ignore_merges) whole_pieces.emplace(symbols == Symbols::kBytes ? *text : token, id);
    bytes[static_cast<std::size_t>(id)] = std::move(*text);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto it = by_text.find(symbols == Symbols::kBytes ? byte_alphabet()[byte] : fmt::format("<0x{:02X}>", byte));
    if (it == by_text.end() && symbols == Symbols::kCharacters)
      return complaint(fmt::format("model.vocab: found no token for byte 0x{:02x}, expected all 256", byte));
    byte_ids[byte] = it == by_text.end() ? -1 : it->second;
  }
  fuse_unknown = spec.fuse_unknown;
  if (spec.unknown.empty() || symbols == Symbols::kCharacters) return {};
  const auto found =
      std::find_if(spec.vocab.begin(), spec.vocab.end(), [&](const auto& each) { return each.first == spec.unknown; });
  if (found == spec.vocab.end())
    return complaint(fmt::format("model.unk_token: found '{}', allowed is a token of model.vocab", spec.unknown));
  unknown = found->second;
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& file) {
  WINDLASS_ASSIGN_OR_RETURN(TokenizerSpec spec, parse_tokenizer_json(json, file));
  const auto complaint = [&](const std::string& text) { return Error{ErrorCode::kInvalidArgument, file + ": " + text}; };
  auto impl = std::make_unique<Impl>();

  impl->symbols = spec.symbols;
  std::int32_t largest = -1;
  for (const auto& [token, id] : spec.vocab) largest = std::max(largest, id);
  for (const AddedToken& token : spec.added) largest = std::max(largest, token.id);
  impl->bytes.resize(static_cast<std::size_t>(largest + 1));
  std::unordered_map<std::string, std::int32_t> by_text;
  if (const auto taken = impl->take_vocab(spec, by_text); !taken.ok()) return complaint(taken.error().message);
  std::unordered_set<std::string_view> is_added;
  for (const AddedToken& token : spec.added) is_added.insert(token.content);
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [a, b] = spec.merges[rank];
    // An added token is cut out of the text before merging. Where its text is literal, merging must not make it after all.
    if (is_added.contains(a) || is_added.contains(b) || is_added.contains(a + b)) continue;
    const auto left = by_text.find(a);
    const auto right = by_text.find(b);
    const auto both = by_text.find(a + b);
    if (left == by_text.end() || right == by_text.end() || both == by_text.end()) {
      return complaint(
          fmt::format("model.merges[{}]: found '{}' + '{}', allowed are parts and results that model.vocab holds", rank, a, b));
    }
    impl->merges.emplace(pair_key(left->second, right->second), Merge{static_cast<std::int32_t>(rank), both->second});
  }
  for (const std::int32_t id : spec.prefix) {
    if (id > largest) return complaint(fmt::format("post_processor: token id: found {}, allowed is at most {}", id, largest));
  }
  auto pretokenizer = Pretokenizer::make(spec.patterns);
  if (!pretokenizer.ok()) return pretokenizer.error().within(file + ": pre_tokenizer");
  impl->pretokenizer.emplace(std::move(pretokenizer).value());
  for (const AddedToken& token : spec.added) {
    // A special token is structure, not text: it decodes to nothing.
    impl->bytes[static_cast<std::size_t>(token.id)] = token.special ? "" : token.content;
  }
  impl->added = std::move(spec.added);
  std::stable_sort(impl->added.begin(), impl->added.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
  for (const AddedToken& token : impl->added) {
    auto& lengths = impl->added_lengths[static_cast<unsigned char>(token.content[0])];
    if (lengths.empty() || lengths.back() != token.content.size()) lengths.push_back(token.content.size());
    impl->by_content.try_emplace(token.content, &token);
    if (token.special) impl->special.try_emplace(token.id, &token);
  }
  for (const std::string& bytes : impl->bytes) impl->longest = std::max(impl->longest, bytes.size());
  for (const AddedToken& token : impl->added) impl->longest = std::max(impl->longest, token.content.size());
  impl->prefix = std::move(spec.prefix);
  impl->nfc = spec.nfc;
  impl->space_prefix = spec.space_prefix;
  impl->split_words = spec.split_words;
  impl->strip_space = spec.strip_space;
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

// is_text(token, at): whether an added token that stands at a place is ordinary text after all.
template <class IsText>
std::vector<std::int32_t> Tokenizer::Impl::encode(std::string_view text, bool continues, IsText is_text) const {
  std::vector<std::int32_t> out;
  std::size_t plain_from = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* found = nullptr;
    for (const std::size_t length : added_lengths[static_cast<unsigned char>(text[at])]) {
      if (length > text.size() - at) continue;
      const auto token = by_content.find(std::string(text.substr(at, length)));
      if (token == by_content.end() || is_text(*token->second, at)) continue;
      found = token->second;
      break;
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    encode_plain(text.substr(plain_from, at - plain_from), plain_from == 0 && !continues, out);
    out.push_back(found->id);
    at += found->content.size();
    plain_from = at;
  }
  encode_plain(text.substr(plain_from), plain_from == 0 && !continues, out);
  return out;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialText special, bool continues) const {
  return impl_->encode(text, continues,
                       [&](const AddedToken& token, std::size_t) { return token.special && special == SpecialText::kLiteral; });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, const std::function<bool(std::size_t)>& typed) const {
  return impl_->encode(text, false, [&](const AddedToken& token, std::size_t at) {
    const bool tag = token.content.starts_with('<') && token.content.ends_with('>');
    if (!token.special && !tag) return false;
    for (std::size_t i = at; i < at + token.content.size(); ++i) {
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
  return found == impl_->special.end() ? std::string_view() : found->second->content;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool with_special) const {
  std::string out;
  for (const std::int32_t id : ids) {
    out += token_bytes(id);
    if (with_special) out += special_text(id);
  }
  if (impl_->strip_space && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  const auto found = impl_->by_content.find(std::string(content));
  return found == impl_->by_content.end() ? std::nullopt : std::optional(found->second->id);
}

const std::vector<std::int32_t>& Tokenizer::prefix() const { return impl_->prefix; }

std::int64_t Tokenizer::least_tokens(std::size_t bytes) const {
  // Composed, a text may be much shorter; and bytes without a token may be left out.
  const bool partial = std::any_of(impl_->byte_ids.begin(), impl_->byte_ids.end(), [](std::int32_t id) { return id < 0; });
  if (impl_->nfc || partial || impl_->longest == 0) return 0;
  return static_cast<std::int64_t>(bytes / impl_->longest);
}

std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(impl_->bytes.size()); }

}  // namespace windlass::worker
