// HeldPort: reserves a TCP port of 127.0.0.1 for a program that is about to start, so that no other program can take it first.
//
// The kernel chooses the port, and the object's socket stays bound to it. The kernel gives the port to nobody else, but a
// server that sets SO_REUSEADDR, as all of ours do, can listen on it, also after a restart.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "planner/base/result.h"

namespace windlass {

class HeldPort {
 public:
  HeldPort() = default;  // holds nothing
  ~HeldPort() { reset(); }
  HeldPort(HeldPort&& other) noexcept : socket_(std::exchange(other.socket_, -1)), port_(std::exchange(other.port_, 0)) {}
  HeldPort& operator=(HeldPort&& other) noexcept {
    std::swap(socket_, other.socket_);
    std::swap(port_, other.port_);
    return *this;
  }

  // Error: kUnavailable when the system has no socket or port left.
  [[nodiscard]] static Result<HeldPort> take() {
    HeldPort held;
    held.socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    constexpr int kYes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (held.socket_ < 0 || ::setsockopt(held.socket_, SOL_SOCKET, SO_REUSEADDR, &kYes, sizeof(kYes)) != 0 ||
        ::bind(held.socket_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::getsockname(held.socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      return Error{ErrorCode::kUnavailable, std::string("no free port on 127.0.0.1: ") + std::strerror(errno)};
    }
    held.port_ = ntohs(address.sin_port);
    return held;
  }

  [[nodiscard]] int number() const { return port_; }

 private:
  void reset() {
    if (socket_ >= 0) ::close(socket_);
  }

  int socket_ = -1;
  int port_ = 0;
};

}  // namespace windlass
