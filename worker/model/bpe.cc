// Merges by rank, with a linked list and a heap. A piece of n bytes takes O(n log n), so a hostile prompt of one endless word
// costs no more than ordinary text.
#include "worker/model/bpe.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include <fmt/core.h>
#include <unicode/utf8.h>

#include "worker/model/pretokenizer.h"

namespace windlass::worker {
namespace {

std::uint64_t pair_key(std::int32_t a, std::int32_t b) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32U) | static_cast<std::uint32_t>(b);
}

std::size_t characters_in(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::size_t character_bytes(std::string_view text) {
  std::int32_t end = 0;
  const auto length = static_cast<std::int32_t>(std::min<std::size_t>(text.size(), 4));
  UChar32 code = 0;
  U8_NEXT(text.data(), end, length, code);
  return code < 0 ? 1 : static_cast<std::size_t>(end);
}

bool append_alphabet_bytes(std::string_view text, std::string& out) {
  static const auto* const kBytes = [] {
    auto* map = new std::unordered_map<std::string_view, char>();
    for (std::size_t byte = 0; byte < 256; ++byte) map->emplace(byte_alphabet()[byte], static_cast<char>(byte));
    return map;
  }();
  const std::size_t before = out.size();
  while (!text.empty()) {
    const std::size_t length = character_bytes(text);
    const auto it = kBytes->find(text.substr(0, length));
    if (it == kBytes->end()) {
      out.resize(before);
      return false;
    }
    out += it->second;
    text.remove_prefix(length);
  }
  return true;
}

Result<Bpe> Bpe::make(const BpeSpec& spec, bool raw_bytes, const std::function<bool(const std::string&)>& is_marker) {
  Bpe bpe;
  bpe.raw_bytes_ = raw_bytes;
  bpe.byte_fallback_ = spec.byte_fallback;
  bpe.fuse_unknown_ = spec.fuse_unknown;
  bpe.subword_prefix_ = spec.subword_prefix;
  bpe.word_suffix_ = spec.word_suffix;
  bpe.byte_ids_.fill(-1);
  std::unordered_map<std::string, std::size_t> byte_names;
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_names.emplace(raw_bytes ? byte_alphabet()[byte] : fmt::format("<0x{:02X}>", byte), byte);
  const std::size_t longest_symbol = 1 + characters_in(spec.subword_prefix) + characters_in(spec.word_suffix);
  bool unknown_found = false;
  for (const auto& [token, id] : spec.vocab) {
    if (const auto byte = byte_names.find(token); byte != byte_names.end()) bpe.byte_ids_[byte->second] = id;
    if (token == spec.unknown) bpe.unknown_ = id, unknown_found = true;
    if (is_marker(token)) continue;
    if (!raw_bytes && characters_in(token) <= longest_symbol) bpe.symbols_.emplace(token, id);
    if (!spec.ignore_merges) continue;
    std::string bytes;
    if (!raw_bytes) {
      bpe.whole_.emplace(token, id);
    } else if (append_alphabet_bytes(token, bytes)) {
      bpe.whole_.emplace(std::move(bytes), id);
    }
  }
  if (spec.unknown.empty()) {
    bpe.unknown_ = -1;
  } else if (!unknown_found) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("model.unk_token: must be a token of model.vocab (got '{}')", spec.unknown)};
  }
  const bool all_bytes = std::none_of(bpe.byte_ids_.begin(), bpe.byte_ids_.end(), [](std::int32_t id) { return id < 0; });
  bpe.complete_ = all_bytes && (raw_bytes || spec.byte_fallback);
  WINDLASS_RETURN_IF_ERROR(bpe.take_merges(spec, is_marker));
  return bpe;
}

Result<void> Bpe::take_merges(const BpeSpec& spec, const std::function<bool(const std::string&)>& is_marker) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (const auto& [token, id] : spec.vocab) ids.emplace(token, id);
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [a, b] = spec.merges[rank];
    const std::string both = a + b.substr(std::min(spec.subword_prefix.size(), b.size()));
    // Markers are split off before merging. If their text is meant literally, merging must not produce them either.
    if (is_marker(a) || is_marker(b) || is_marker(both)) continue;
    const auto left = ids.find(a), right = ids.find(b), result = ids.find(both);
    if (left == ids.end() || right == ids.end() || result == ids.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("model.merges[{}]: must have parts and a result in model.vocab (got '{}' + '{}')", rank, a, b)};
    }
    merges_.insert_or_assign(pair_key(left->second, right->second), Merge{static_cast<std::int32_t>(rank), result->second});
  }
  return {};
}

std::vector<std::int32_t> Bpe::symbols_of_bytes(std::string_view piece) const {
  std::vector<std::int32_t> ids;
  ids.reserve(piece.size());
  bool after_unknown = false;
  for (const char c : piece) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id < 0 && unknown_ < 0) continue;
    if (id >= 0 || !after_unknown || !fuse_unknown_) ids.push_back(id >= 0 ? id : unknown_);
    after_unknown = id < 0;
  }
  return ids;
}

std::vector<std::int32_t> Bpe::symbols_of(std::string_view piece) const {
  if (raw_bytes_) return symbols_of_bytes(piece);
  std::vector<std::int32_t> ids;
  ids.reserve(piece.size());
  // As in the reference, an unknown token is written only when the next symbol follows; byte tokens are not symbols and come
  // out before it.
  bool waiting = false;
  std::string symbol;
  for (std::size_t at = 0, next = 0; at < piece.size(); at = next) {
    next = at + character_bytes(piece.substr(at));
    symbol = at == 0 ? "" : subword_prefix_;
    symbol += piece.substr(at, next - at);
    if (next == piece.size()) symbol += word_suffix_;
    if (const auto found = symbols_.find(symbol); found != symbols_.end()) {
      if (waiting) ids.push_back(unknown_);
      waiting = false;
      ids.push_back(found->second);
      continue;
    }
    const auto has_token = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
    if (byte_fallback_ && std::all_of(symbol.begin(), symbol.end(), has_token)) {
      for (const char c : symbol) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (unknown_ >= 0) {
      if (waiting && !fuse_unknown_) ids.push_back(unknown_);
      waiting = true;
    }
  }
  if (waiting) ids.push_back(unknown_);
  return ids;
}

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (const auto whole = whole_.find(piece); whole != whole_.end()) return out.push_back(whole->second);
  struct Node {
    std::int32_t id;
    std::int32_t prev;
    std::int32_t next;  // -1: none
  };
  const std::vector<std::int32_t> ids = symbols_of(piece);
  const auto n = static_cast<std::int32_t>(ids.size());
  std::vector<Node> nodes(ids.size());
  for (std::int32_t i = 0; i < n; ++i) nodes[i] = {ids[i], i - 1, i + 1 < n ? i + 1 : -1};
  // (rank, left position, left id, right id): lowest rank first, leftmost among equals. An entry whose ids have changed is
  // stale and skipped.
  using Entry = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || nodes[left].next < 0) return;
    const std::int32_t a = nodes[left].id;
    const std::int32_t b = nodes[nodes[left].next].id;
    if (const auto it = merges_.find(pair_key(a, b)); it != merges_.end()) heap.emplace(it->second.rank, left, a, b);
  };
  for (std::int32_t i = 0; i + 1 < n; ++i) offer(i);
  while (!heap.empty()) {
    const auto [rank, left, a, b] = heap.top();
    heap.pop();
    const std::int32_t right = nodes[left].next;
    if (nodes[left].id != a || right < 0 || nodes[right].id != b) continue;
    nodes[left].id = merges_.at(pair_key(a, b)).result;
    nodes[left].next = nodes[right].next;
    if (nodes[right].next >= 0) nodes[nodes[right].next].prev = left;
    nodes[right].id = -1;  // removed: no entry matches it any more
    offer(nodes[left].prev);
    offer(left);
  }
  for (std::int32_t i = 0; i >= 0 && i < n; i = nodes[i].next) out.push_back(nodes[i].id);
}

}  // namespace windlass::worker
