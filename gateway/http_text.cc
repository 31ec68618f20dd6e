// Builds header lines by hand: one string, written once.
#include "gateway/http_text.h"

#include <algorithm>
#include <initializer_list>
#include <random>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <fmt/format.h>

namespace windlass::gateway {
namespace {

std::string passed(const http::fields& fields, std::initializer_list<beast::string_view> names) {
  http::token_list hop_by_hop{fields[http::field::connection]};
  std::string lines;
  for (const auto& field : fields) {
    const auto name = field.name_string();
    if (std::none_of(names.begin(), names.end(), [&](beast::string_view allowed) { return beast::iequals(allowed, name); }))
      continue;
    if (hop_by_hop.exists(name)) continue;
    lines.append(name.data(), name.size());
    lines.append(": ");
    lines.append(field.value().data(), field.value().size());
    lines.append("\r\n");
  }
  return lines;
}

}  // namespace

std::string headers_to_worker(const http::fields& fields) {
  return passed(fields, {"Accept", "Content-Type", "Traceparent", "Tracestate"});
}

std::string headers_to_client(const http::fields& fields) {
  return passed(fields, {"Cache-Control", "Content-Type", "Retry-After"});
}

bool stays_open(const HttpRequest& request) { return request.keep_alive() && request.method() != http::verb::head; }

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

}  // namespace windlass::gateway
