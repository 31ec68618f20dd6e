// CORS: decides which web pages of other origins may read the answers of the public side. Pure.
//
// Off until an origin is allowed. Credentials here are API keys that the page sends itself, not cookies, so no answer carries
// Access-Control-Allow-Credentials.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::gateway {

class Cors {
 public:
  Cors() = default;
  // REQUIRES: parse_origin accepted each origin.
  explicit Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // "*", or http(s)://HOST[:PORT] as browsers write it. Error: kInvalidArgument.
  [[nodiscard]] static Result<std::string> parse_origin(std::string_view text);

  [[nodiscard]] bool enabled() const { return !origins_.empty(); }
  // Header lines for every answer to a request from this origin (empty: the request has no Origin header).
  [[nodiscard]] std::string headers(std::string_view origin) const;
  // Header lines for the answer to a preflight request that asks for these headers.
  [[nodiscard]] std::string preflight_headers(std::string_view origin, std::string_view asked_headers) const;

 private:
  [[nodiscard]] bool any() const;

  std::vector<std::string> origins_;
};

}  // namespace windlass::gateway
