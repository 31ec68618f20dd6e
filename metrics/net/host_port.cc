// See host_port.h.
#include "metrics/net/host_port.h"

#include <charconv>

#include <fmt/format.h>

namespace windlass::net {

Result<HostPort> parse_host_port(std::string_view text) {
  const auto bad = [&] {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080 (got '{}')", text)};
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad();
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.back() != ']' || host.size() < 3) return bad();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad();
  }
  if (host.find_first_of(" /\t\r\n@?#") != std::string_view::npos) return bad();
  int number = -1;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 0 || number > 65535) return bad();
  return HostPort{std::string(host), std::to_string(number)};
}

Result<HostPort> parse_host_port(std::string_view text, int default_port) {
  const auto bracket = text.rfind(']');
  const bool has_port = text.find(':', bracket == std::string_view::npos ? 0 : bracket) != std::string_view::npos;
  return parse_host_port(has_port ? std::string(text) : fmt::format("{}:{}", text, default_port));
}

std::string to_string(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + address.port;
}

}  // namespace windlass::net
