// See secrets.h.
#include "metrics/security/secrets.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

namespace windlass::security {
namespace {

constexpr std::size_t kMinTokenChars = 16;
constexpr std::size_t kMaxTokenChars = 4096;

std::array<unsigned char, SHA256_DIGEST_LENGTH> digest(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> out{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

std::string hex_of(const std::array<unsigned char, SHA256_DIGEST_LENGTH>& bytes) {
  std::string hex;
  for (const unsigned char byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

Result<std::string> parse_token(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto begin = text.find_first_not_of(kSpace);
  text = begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
  const bool visible = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (visible && text.size() >= kMinTokenChars && text.size() <= kMaxTokenChars) return std::string(text);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("token: must be {} to {} visible ASCII characters on one line (got {} characters{})", kMinTokenChars,
                           kMaxTokenChars, text.size(), visible ? "" : ", some not visible ASCII")};
}

std::string sha256_hex(std::string_view text) { return hex_of(digest(text)); }

std::string derived_secret(std::string_view secret, std::string_view purpose) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> out{};
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const unsigned char*>(purpose.data()),
       purpose.size(), out.data(), nullptr);
  return hex_of(out);
}

bool same_secret(std::string_view a, std::string_view b) {
  const auto digest_a = digest(a), digest_b = digest(b);
  return CRYPTO_memcmp(digest_a.data(), digest_b.data(), digest_a.size()) == 0;
}

std::string_view bearer(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return {};
  const bool same =
      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(), [](char a, char b) { return a == lower(b); });
  if (!same) return {};
  authorization.remove_prefix(kScheme.size());
  const auto begin = authorization.find_first_not_of(' ');
  return begin == std::string_view::npos ? std::string_view{} : authorization.substr(begin);
}

}  // namespace windlass::security
