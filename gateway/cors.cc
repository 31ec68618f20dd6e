// Builds the header lines of CORS.
#include "gateway/cors.h"

#include <algorithm>

#include <fmt/format.h>

#include "metrics/net/host_port.h"
#include "planner/base/foreign_text.h"

namespace windlass::gateway {
namespace {

constexpr std::size_t kMaxAskedBytes = 2048;
constexpr std::string_view kOwnHeaders = "Authorization, Content-Type, X-Request-Id";

// A list of header names, without anything that could end the header line.
bool is_name_list(std::string_view text) {
  return !text.empty() && text.size() <= kMaxAskedBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == ',' ||
           c == ' ';
  });
}

}  // namespace

Result<std::string> Cors::parse_origin(std::string_view text) {
  if (text == "*") return std::string(text);
  const Error bad{
      ErrorCode::kInvalidArgument,
      fmt::format("must be * or an origin such as https://chat.example or http://localhost:3000 (got '{}')", shown_text(text))};
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  const bool tls = text.substr(0, kHttps.size()) == kHttps;
  if (!tls && text.substr(0, kHttp.size()) != kHttp) return bad;
  const std::string_view rest = text.substr(tls ? kHttps.size() : kHttp.size());
  const bool plain = !rest.empty() && std::all_of(rest.begin(), rest.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == ':' || c == '[' || c == ']';
  });
  if (!plain) return bad;
  if (!net::parse_host_port(rest, 80).ok()) return bad;
  return std::string(text);
}

bool Cors::any() const { return std::find(origins_.begin(), origins_.end(), "*") != origins_.end(); }

std::string Cors::headers(std::string_view origin) const {
  constexpr std::string_view kExposed = "Access-Control-Expose-Headers: Retry-After, X-Request-Id, X-Windlass-Worker\r\n";
  if (!enabled()) return {};
  if (any()) return origin.empty() ? std::string() : fmt::format("Access-Control-Allow-Origin: *\r\n{}", kExposed);
  // A cache must not give one origin's answer to another origin.
  if (std::find(origins_.begin(), origins_.end(), origin) == origins_.end()) return "Vary: Origin\r\n";
  return fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n{}", origin, kExposed);
}

std::string Cors::preflight_headers(std::string_view origin, std::string_view asked_headers) const {
  std::string lines = headers(origin);
  if (lines.find("Allow-Origin") == std::string::npos) return lines;
  return lines + fmt::format(
                     "Access-Control-Allow-Methods: GET, POST\r\nAccess-Control-Allow-Headers: {}\r\n"
                     "Access-Control-Max-Age: 600\r\n",
                     is_name_list(asked_headers) ? asked_headers : kOwnHeaders);
}

}  // namespace windlass::gateway
