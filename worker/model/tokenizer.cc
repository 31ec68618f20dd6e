// Merging by rank over a linked list with a heap: a piece of n bytes takes O(n log n), so that a hostile prompt of one endless
// word costs no more than an honest one.
#include "worker/model/tokenizer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>

#include <fmt/core.h>

#include "worker/model/files.h"
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
  std::array<std::int32_t, 256> byte_ids{};
  std::unordered_map<std::uint64_t, Merge> merges;
  std::unordered_map<std::string, std::int32_t> whole_pieces;  // by bytes; filled when ignore_merges
  std::vector<std::string> bytes;                              // by id
  std::vector<AddedToken> added;                               // longest first, so that the longest match wins
  std::optional<Pretokenizer> pretokenizer;
  std::vector<std::int32_t> prefix;
  bool nfc = false;

  void encode_piece(std::string_view piece, std::vector<std::int32_t>& out) const;
  void encode_plain(std::string_view text, std::vector<std::int32_t>& out) const;
};

void Tokenizer::Impl::encode_piece(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (const auto whole = whole_pieces.find(std::string(piece)); whole != whole_pieces.end())
    return out.push_back(whole->second);
  struct Node {
    std::int32_t id;
    std::int32_t prev;
    std::int32_t next;  // -1: none
  };
  const auto n = static_cast<std::int32_t>(piece.size());
  std::vector<Node> nodes(piece.size());
  for (std::int32_t i = 0; i < n; ++i) {
    nodes[i] = {byte_ids[static_cast<unsigned char>(piece[i])], i - 1, i + 1 < n ? i + 1 : -1};
  }
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

void Tokenizer::Impl::encode_plain(std::string_view text, std::vector<std::int32_t>& out) const {
  const std::string normal = nfc ? normalize_nfc(text) : std::string();
  for (const std::string_view piece : pretokenizer->split(nfc ? std::string_view(normal) : text)) encode_piece(piece, out);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& file) {
  WINDLASS_ASSIGN_OR_RETURN(TokenizerSpec spec, parse_tokenizer_json(json, file));
  const auto complaint = [&](const std::string& text) { return Error{ErrorCode::kInvalidArgument, file + ": " + text}; };
  auto impl = std::make_unique<Impl>();

  std::unordered_map<std::string, std::int32_t> by_text;
  std::int32_t largest = -1;
  for (const auto& [token, id] : spec.vocab) largest = std::max(largest, id);
  for (const AddedToken& token : spec.added) largest = std::max(largest, token.id);
  impl->bytes.resize(static_cast<std::size_t>(largest + 1));
  std::unordered_map<std::string, bool> is_added;
  for (const AddedToken& token : spec.added) is_added.emplace(token.content, true);
  for (const auto& [token, id] : spec.vocab) {
    if (is_added.count(token) != 0) continue;  // some files list added tokens in both places; their text is not byte-level
    auto bytes = bytes_of(token);
    if (!bytes || bytes->empty()) {
      return complaint(
          fmt::format("model.vocab: token '{}' (id {}): found characters outside the byte-level alphabet, allowed are "
                      "the 256 of GPT-2",
                      token, id));
    }
    impl->bytes[static_cast<std::size_t>(id)] = *bytes;
    by_text.emplace(token, id);
    if (spec.ignore_merges) impl->whole_pieces.emplace(std::move(*bytes), id);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto it = by_text.find(byte_alphabet()[byte]);
    if (it == by_text.end())
      return complaint(fmt::format("model.vocab: found no token for byte 0x{:02x}, expected all 256", byte));
    impl->byte_ids[byte] = it->second;
  }
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [a, b] = spec.merges[rank];
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
  impl->prefix = std::move(spec.prefix);
  impl->nfc = spec.nfc;
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  const auto path = folder / "tokenizer.json";
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  return parse(text, path.string());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialText special) const {
  std::vector<std::int32_t> out;
  std::size_t plain_from = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* found = nullptr;
    for (const AddedToken& token : impl_->added) {
      if (token.special && special == SpecialText::kLiteral) continue;
      if (text[at] == token.content[0] && text.compare(at, token.content.size(), token.content) == 0) {
        found = &token;
        break;
      }
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    impl_->encode_plain(text.substr(plain_from, at - plain_from), out);
    out.push_back(found->id);
    at += found->content.size();
    plain_from = at;
  }
  impl_->encode_plain(text.substr(plain_from), out);
  return out;
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= impl_->bytes.size()) return {};
  return impl_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  for (const std::int32_t id : ids) out += token_bytes(id);
  return out;
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  for (const AddedToken& token : impl_->added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

const std::vector<std::int32_t>& Tokenizer::prefix() const { return impl_->prefix; }

std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(impl_->bytes.size()); }

}  // namespace windlass::worker
