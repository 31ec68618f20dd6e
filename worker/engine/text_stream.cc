// The UTF-8 automaton and the stop-string matcher.
#include "worker/engine/text_stream.h"

#include <algorithm>
#include <cstdint>

namespace windlass::worker {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// How a sequence starts: its length and the valid range of its second byte (Unicode 15, table 3-7). Length 0: not a valid
// start.
struct Lead {
  std::size_t length;
  unsigned char low;
  unsigned char high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // excludes surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  const std::string input = held_ + std::string(bytes);
  held_.clear();
  std::string out;
  std::size_t at = 0;
  while (at < input.size()) {
    const Lead lead = lead_of(static_cast<unsigned char>(input[at]));
    if (lead.length == 0) {
      out += kReplacement;
      ++at;
      continue;
    }
    std::size_t valid = 1;
    while (valid < lead.length && at + valid < input.size()) {
      const auto byte = static_cast<unsigned char>(input[at + valid]);
      const unsigned char low = valid == 1 ? lead.low : 0x80;
      const unsigned char high = valid == 1 ? lead.high : 0xBF;
      if (byte < low || byte > high) break;
      ++valid;
    }
    if (valid == lead.length) {
      out.append(input, at, valid);
    } else if (at + valid == input.size()) {
      held_ = input.substr(at);
      break;
    } else {
      out += kReplacement;
    }
    at += valid;
  }
  return out;
}

std::string Utf8Stream::finish() {
  const bool incomplete = !held_.empty();
  held_.clear();
  return incomplete ? std::string(kReplacement) : std::string();
}

TextStream::Piece TextStream::match(std::string text) {
  held_ += text;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    Piece piece{held_.substr(0, first), true};
    held_.clear();
    return piece;
  }
  // Hold back the longest tail that begins a stop string.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
        keep = n;
        break;
      }
    }
  }
  Piece piece{held_.substr(0, held_.size() - keep), false};
  held_.erase(0, held_.size() - keep);
  return piece;
}

TextStream::Piece TextStream::push(std::string_view token_bytes) {
  std::string text = utf8_.push(token_bytes);
  if (stops_.empty()) return {std::move(text), false};
  return match(std::move(text));
}

std::string TextStream::finish() {
  std::string tail = utf8_.finish();
  std::string out = std::move(held_);
  held_.clear();
  out += tail;
  return out;
}

}  // namespace windlass::worker
