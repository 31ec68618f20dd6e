// Stores two strings of equal length: the bytes and their origins.
#include "worker/jinja/text.h"

#include <algorithm>
#include <cstdint>

#include <fmt/core.h>
#include <unicode/utf8.h>

#include "worker/jinja/value.h"

namespace windlass::jinja {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20U;
constexpr std::size_t kBytesAStep = 64;

}  // namespace

Text Text::like(const Text& like, std::string_view bytes) { return Text(bytes, like.from_input() ? kInput : kTemplate); }

Text& Text::operator+=(const Text& more) {
  if (bytes_.size() + more.bytes_.size() > kMaxBytes)
    throw TemplateError{fmt::format("a string would be longer than {} bytes", kMaxBytes)};
  charge(1 + static_cast<std::int64_t>(more.bytes_.size() / kBytesAStep));
  bytes_ += more.bytes_;
  origins_ += more.origins_;
  return *this;
}

Text Text::substr(std::size_t from, std::size_t count) const {
  Text part;
  part.bytes_ = bytes_.substr(from, count);
  part.origins_ = origins_.substr(from, count);
  return part;
}

std::int32_t code_point(std::string_view text) {
  std::int32_t end = 0;
  UChar32 code = 0;
  U8_NEXT(text.data(), end, static_cast<std::int32_t>(std::min<std::size_t>(text.size(), 4)), code);
  return code;
}

std::vector<std::size_t> character_starts(std::string_view text) {
  charge(1 + static_cast<std::int64_t>(text.size() / kBytesAStep));
  std::vector<std::size_t> starts;
  starts.reserve(text.size() + 1);
  for (std::size_t at = 0; at < text.size();) {
    starts.push_back(at);
    std::int32_t end = 0;
    UChar32 code = 0;
    U8_NEXT(text.data() + at, end, static_cast<std::int32_t>(std::min<std::size_t>(text.size() - at, 4)), code);
    at += code < 0 ? 1 : static_cast<std::size_t>(end);
  }
  starts.push_back(text.size());
  return starts;
}

}  // namespace windlass::jinja
