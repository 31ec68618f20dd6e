// Ports for programs that tests start.
#pragma once

#include <deque>

#include <netinet/in.h>
#include <sys/socket.h>

#include "metrics/host/held_port.h"

namespace windlass {

// A TCP port of 127.0.0.1 that belongs to this process until it ends.
[[nodiscard]] inline int free_port() {
  static std::deque<HeldPort> held;
  held.push_back(HeldPort::take().value());
  return held.back().number();
}

// The same of every address of this machine, of both families: of IPv6 a port of 127.0.0.1 may be somebody's already. REQUIRES:
// there is IPv6.
[[nodiscard]] inline int free_port_of_both_families() {
  const int held = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  constexpr int kYes = 1, kNo = 0;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof(address);
  const bool good = ::setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &kYes, sizeof(kYes)) == 0 &&
                    ::setsockopt(held, IPPROTO_IPV6, IPV6_V6ONLY, &kNo, sizeof(kNo)) == 0 &&
                    ::bind(held, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                    ::getsockname(held, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return good ? ntohs(address.sin6_port) : 0;
}

}  // namespace windlass
