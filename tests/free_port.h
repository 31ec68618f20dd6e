// Ports for programs that tests start: nobody listens there, and nobody is given them who asks the system for any port.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace windlass {

// A TCP port of 127.0.0.1, below those that the system hands out by itself, so that it can be had again after a restart. Test
// programs that run beside each other begin at different ones.
[[nodiscard]] inline int free_port() {
  constexpr int kFirst = 20000, kPorts = 12000, kOfAProcess = 16;
  static int next = ::getpid() % (kPorts / kOfAProcess) * kOfAProcess;
  for (int attempt = 0; attempt < kPorts; ++attempt) {
    const int port = kFirst + next;
    next = (next + 1) % kPorts;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool free = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    ::close(fd);
    if (free) return port;
  }
  std::fprintf(stderr, "no free port between %d and %d on 127.0.0.1\n", kFirst, kFirst + kPorts);
  std::abort();
}

}  // namespace windlass
