// HostPort: parses and prints "HOST:PORT" addresses, as in flags and URLs.
#pragma once

#include <string>
#include <string_view>

#include "planner/base/result.h"

namespace windlass::net {

struct HostPort {
  std::string host;  // a name or an address, without brackets
  std::string port;  // digits, 0 to 65535

  bool operator==(const HostPort&) const = default;
};

// "127.0.0.1:8080", "[::1]:8080", "gateway.default:8080". Brackets may stand around IPv4 too, for [$(POD_IP)]:8080, where the
// family is not known yet. Error: kInvalidArgument.
[[nodiscard]] Result<HostPort> parse_host_port(std::string_view text);
// As in URLs: without ":PORT", the port is default_port.
[[nodiscard]] Result<HostPort> parse_host_port(std::string_view text, int default_port);
[[nodiscard]] std::string to_string(const HostPort& address);  // brackets around IPv6

}  // namespace windlass::net
