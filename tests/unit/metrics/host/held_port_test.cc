// Ports held for a program: nobody else gets them, and the program can listen on them.
#include "metrics/host/held_port.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace windlass {
namespace {

// A socket bound to the port as a server does it, or -1; the caller closes it.
int bound_socket(int port, bool reuse_address) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = reuse_address ? 1 : 0;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return socket;
  ::close(socket);
  return -1;
}

// Given a held port; expects a server with SO_REUSEADDR to listen on it, also after a restart, and a program that needs an
// entirely free port not to get it.
TEST(HeldPort, BelongsToOneServer) {
  const HeldPort held = HeldPort::take().value();
  for (int start = 0; start < 2; ++start) {
    const int server = bound_socket(held.number(), true);
    ASSERT_GE(server, 0);
    EXPECT_EQ(::listen(server, 1), 0);
    ::close(server);
  }
  EXPECT_EQ(bound_socket(held.number(), false), -1);
}

// Given many held ports; expects no two to be equal.
TEST(HeldPort, IsUnique) {
  std::vector<HeldPort> held;
  std::set<int> numbers;
  for (int i = 0; i < 500; ++i) {
    held.push_back(HeldPort::take().value());
    numbers.insert(held.back().number());
  }
  EXPECT_EQ(numbers.size(), held.size());
}

// Given a port that was moved to another holder; expects the new holder to have it, and the old one nothing.
TEST(HeldPort, Moves) {
  HeldPort first = HeldPort::take().value();
  const int number = first.number();
  const HeldPort second = std::move(first);
  EXPECT_EQ(second.number(), number);
  EXPECT_EQ(bound_socket(number, false), -1);
}

}  // namespace
}  // namespace windlass
