// Ports for programs that tests start: nobody else's, and none that the system gives whoever asks for any.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace windlass {

// A TCP port of 127.0.0.1 that is this process's until it ends: whoever sets SO_REUSEADDR, as servers do, can listen there,
// also again after a restart, and other processes' free_port() passes it by. Below those that the system hands out by itself.
[[nodiscard]] inline int free_port() {
  constexpr int kFirst = 20000, kPorts = 12000, kOfAProcess = 16;
  static int next = ::getpid() % (kPorts / kOfAProcess) * kOfAProcess;
  const auto bound = [](int socket, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  };
  for (int attempt = 0; attempt < kPorts; ++attempt) {
    const int port = kFirst + next;
    next = (next + 1) % kPorts;
    const int looks = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free = bound(looks, port);  // nobody has it, in whatever way
    ::close(looks);
    if (!free) continue;
    const int keeps = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    constexpr int kYes = 1;
    ::setsockopt(keeps, SOL_SOCKET, SO_REUSEADDR, &kYes, sizeof(kYes));
    if (bound(keeps, port)) return port;
    ::close(keeps);
  }
  std::fprintf(stderr, "no free port between %d and %d on 127.0.0.1\n", kFirst, kFirst + kPorts);
  std::abort();
}

}  // namespace windlass
