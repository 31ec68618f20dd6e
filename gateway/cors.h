// CORS: which web pages of other origins may read the public side's answers. Pure.
//
// Off until an origin is allowed. Credentials are no cookies here but API keys that the page sends itself, so that nothing is
// said of Access-Control-Allow-Credentials.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::gateway {

class Cors {
 public:
  Cors() = default;
  // REQUIRES: each was accepted by parse_origin.
  explicit Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // "*", or http(s)://HOST[:PORT] as browsers write it. Error: kInvalidArgument.
  [[nodiscard]] static Result<std::string> parse_origin(std::string_view text);

  [[nodiscard]] bool enabled() const { return !origins_.empty(); }
  // The header lines of every answer to a request of this origin (empty: it names none).
  [[nodiscard]] std::string headers(std::string_view origin) const;
  // Those of the answer to a preflight request that asks for these headers.
  [[nodiscard]] std::string preflight_headers(std::string_view origin, std::string_view asked_headers) const;

 private:
  [[nodiscard]] bool any() const;

  std::vector<std::string> origins_;
};

}  // namespace windlass::gateway
