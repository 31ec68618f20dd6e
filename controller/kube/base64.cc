// Decodes base64 with the alphabet of RFC 4648.
#include "controller/kube/base64.h"

#include <cstdint>

namespace windlass::kube {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::optional<std::string> base64_decode(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0, padding = 0;
  std::size_t symbols = 0;
  for (char c : text) {
    if (c == '\n' || c == '\r' || c == ' ') continue;
    ++symbols;
    if (c == '=') {
      if (++padding > 2) return std::nullopt;
      continue;
    }
    std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos || padding > 0) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    if ((count += 6) >= 8) {
      count -= 8;
      out += static_cast<char>((bits >> count) & 0xff);
    }
  }
  if (symbols % 4 != 0) return std::nullopt;
  return out;
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = (bits << 8) | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    std::size_t have = bytes.size() - i;
    out += kAlphabet[(bits >> 18) & 63];
    out += kAlphabet[(bits >> 12) & 63];
    out += have > 1 ? kAlphabet[(bits >> 6) & 63] : '=';
    out += have > 2 ? kAlphabet[bits & 63] : '=';
  }
  return out;
}

}  // namespace windlass::kube
