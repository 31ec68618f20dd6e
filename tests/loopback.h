// Addresses of this machine, for tests' own sockets.
#pragma once

#include <cstdint>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace windlass {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace windlass
