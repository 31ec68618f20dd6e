// Header lines by hand: one string, written once.
#include "gateway/http_text.h"

#include <algorithm>
#include <random>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <fmt/format.h>

namespace windlass::gateway {
namespace {

bool is_own_or_hop(http::field name, beast::string_view text) {
  switch (name) {
    case http::field::connection:
    case http::field::keep_alive:
    case http::field::proxy_authenticate:
    case http::field::proxy_authorization:
    case http::field::proxy_connection:
    case http::field::te:
    case http::field::trailer:
    case http::field::transfer_encoding:
    case http::field::upgrade:
    case http::field::host:
    case http::field::content_length:
    case http::field::expect: return true;
    default: break;
  }
  return beast::iequals(text, "X-Request-Id") || beast::iequals(text.substr(0, 11), "X-Windlass-");
}

}  // namespace

std::string end_to_end_headers(const http::fields& fields) {
  http::token_list named{fields[http::field::connection]};
  std::string lines;
  for (const auto& field : fields) {
    if (is_own_or_hop(field.name(), field.name_string())) continue;
    if (named.exists(field.name_string())) continue;
    lines.append(field.name_string().data(), field.name_string().size());
    lines.append(": ");
    lines.append(field.value().data(), field.value().size());
    lines.append("\r\n");
  }
  return lines;
}

std::string request_id(const http::fields& fields) {
  const auto found = fields.find("X-Request-Id");
  if (found != fields.end()) {
    const auto value = found->value();
    const bool safe = std::all_of(value.begin(), value.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.' ||
             c == ':';
    });
    if (safe && !value.empty() && value.size() <= 128) return std::string(value);
  }
  static thread_local std::mt19937_64 engine{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", engine(), engine());
}

std::string_view reason_phrase(int status) {
  const auto text = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  return {text.data(), text.size()};
}

std::string simple_response(int status, std::string_view content_type, std::string_view body, bool keep_alive,
                            std::string_view extra) {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}\r\n{}", status, reason_phrase(status),
                     content_type, body.size(), keep_alive ? "" : "Connection: close\r\n", extra, body);
}

}  // namespace windlass::gateway
