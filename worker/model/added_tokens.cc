// Finds added tokens in one pass over the text, with one hash lookup per length that occurs among tokens with the same first
// byte.
#include "worker/model/added_tokens.h"

#include <algorithm>

#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace windlass::worker {
namespace {

// The character at the end, or at the beginning; negative if there is none.
UChar32 last_of(std::string_view text) {
  auto at = static_cast<std::int32_t>(text.size());
  UChar32 code = -1;
  if (at > 0) U8_PREV(text.data(), 0, at, code);
  return code;
}

UChar32 first_of(std::string_view text) {
  std::int32_t at = 0;
  const auto length = static_cast<std::int32_t>(std::min<std::size_t>(text.size(), U8_MAX_LENGTH));
  UChar32 code = -1;
  if (length > 0) U8_NEXT(text.data(), at, length, code);
  return code;
}

bool is_word(UChar32 code) {
  constexpr std::uint32_t kCategories = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return code >= 0 && (u_hasBinaryProperty(code, UCHAR_ALPHABETIC) != 0 || (U_GET_GC_MASK(code) & kCategories) != 0 ||
                       u_hasBinaryProperty(code, UCHAR_JOIN_CONTROL) != 0);
}

bool is_space(UChar32 code) { return code >= 0 && u_isUWhiteSpace(code) != 0; }

}  // namespace

void AddedTokens::add(const std::string& text, const AddedToken& token) {
  if (text.empty() || !by_text_.try_emplace(text, token).second) return;
  auto& lengths = lengths_[static_cast<unsigned char>(text[0])];
  if (std::find(lengths.begin(), lengths.end(), text.size()) != lengths.end()) return;
  lengths.push_back(text.size());
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
}

std::vector<AddedTokens::Found> AddedTokens::find(
    std::string_view text, const std::function<bool(const AddedToken&, std::size_t, std::size_t)>& is_text) const {
  std::vector<Found> found;
  std::size_t taken = 0;  // everything before this is consumed
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = nullptr;
    std::size_t end = at;
    for (const std::size_t length : lengths_[static_cast<unsigned char>(text[at])]) {
      if (length > text.size() - at) continue;
      const auto match = by_text_.find(std::string(text.substr(at, length)));
      if (match == by_text_.end() || is_text(match->second, at, at + length)) continue;
      token = &match->second;
      end = at + length;
      break;
    }
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    at = end;
    if (token->single_word && (is_word(last_of(text.substr(0, begin))) || is_word(first_of(text.substr(end))))) continue;
    while (token->lstrip && begin > taken && is_space(last_of(text.substr(taken, begin - taken)))) {
      do --begin;
      while ((text[begin] & 0xC0) == 0x80);
    }
    // Continue after the previous token, which consumed white space up to `end`; scanning it again would be quadratic.
    if (token->rstrip) end = std::max(end, taken);
    while (token->rstrip && end < text.size() && is_space(first_of(text.substr(end)))) {
      do ++end;
      while (end < text.size() && (text[end] & 0xC0) == 0x80);
    }
    found.push_back({std::max(begin, std::min(taken, end)), end, token->id});
    taken = end;
  }
  return found;
}

}  // namespace windlass::worker
