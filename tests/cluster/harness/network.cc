// Implements network.h.
#include "tests/cluster/harness/network.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace windlass::testing {
namespace {

// 127.0.0.0/16 and 127.1.0.0/16 are in use on many machines.
constexpr int kFirst = 2, kLast = 254;
// Below the kernel's ephemeral ports; no pod listens on it.
constexpr std::uint16_t kClaimPort = 19999;

// A socket bound to 127.`network`.255.254, or -1 if another process holds it.
int claim(int network) {
  const int holder = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kClaimPort);
  address.sin_addr.s_addr = htonl((127U << 24) | (static_cast<std::uint32_t>(network) << 16) | (255U << 8) | 254U);
  if (::bind(holder, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return holder;
  ::close(holder);
  return -1;
}

}  // namespace

int claim_networks(int count) {
  std::vector<int> held;
  for (int network = kFirst; network <= kLast; ++network) {
    const int holder = claim(network);
    if (holder >= 0) {
      held.push_back(holder);
      if (static_cast<int>(held.size()) == count) return network - count + 1;  // the sockets stay open
      continue;
    }
    for (const int socket : held) ::close(socket);
    held.clear();
  }
  fmt::print(stderr, "no {} free networks between 127.{}.0.0/16 and 127.{}.0.0/16\n", count, kFirst, kLast);
  std::abort();
}

}  // namespace windlass::testing
