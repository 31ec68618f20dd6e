// Blocking calls, restarted after signals.
#include "worker/parallel/tcp.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "metrics/net/host_port.h"

namespace windlass::worker {
namespace {

constexpr double kConnectS = 1;
constexpr double kLeastBytesPerS = 100e3;  // the slowest peer that is tolerated

// Deadline for a number of bytes: the socket's timeout plus their time at the minimum rate. Without it, one byte now and then
// would keep a connection open.
class Deadline {
 public:
  Deadline(int socket, int option, std::size_t bytes) {
    timeval limit{};
    socklen_t size = sizeof(limit);
    ::getsockopt(socket, SOL_SOCKET, option, &limit, &size);
    const double seconds = static_cast<double>(limit.tv_sec) + static_cast<double>(limit.tv_usec) * 1e-6;
    if (seconds > 0) at_ = now() + std::chrono::duration<double>(seconds + static_cast<double>(bytes) / kLeastBytesPerS);
  }
  // Reports a timeout as if nothing had arrived.
  [[nodiscard]] bool over() const {
    if (!at_ || now() < *at_) return false;
    errno = EAGAIN;
    return true;
  }

 private:
  using Time = std::chrono::time_point<std::chrono::steady_clock, std::chrono::duration<double>>;
  static Time now() { return std::chrono::steady_clock::now(); }
  std::optional<Time> at_;
};

Error nobody(const std::string& address, const char* why) {
  return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", address, why)};
}

}  // namespace

void set_limits(int socket, double receive_s, double send_s) {
  for (const auto& [option, seconds] : {std::pair{SO_RCVTIMEO, receive_s}, std::pair{SO_SNDTIMEO, send_s}}) {
    const auto whole = static_cast<time_t>(seconds);
    const timeval limit{whole, static_cast<suseconds_t>((seconds - static_cast<double>(whole)) * 1e6)};
    ::setsockopt(socket, SOL_SOCKET, option, &limit, sizeof(limit));
  }
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

bool receive_all(int socket, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  const Deadline deadline(socket, SO_RCVTIMEO, bytes);
  while (bytes > 0) {
    if (deadline.over()) return false;
    const ssize_t come = ::recv(socket, at, bytes, 0);
    if (come < 0 && errno == EINTR) continue;
    if (come == 0) errno = ECONNRESET;
    if (come <= 0) return false;
    at += come;
    bytes -= static_cast<std::size_t>(come);
  }
  return true;
}

bool send_all(int socket, std::span<iovec> parts) {
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  const Deadline deadline(socket, SO_SNDTIMEO, bytes);
  while (!parts.empty()) {
    if (deadline.over()) return false;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    while (!parts.empty() && static_cast<std::size_t>(sent) >= parts.front().iov_len) {
      sent -= static_cast<ssize_t>(parts.front().iov_len);
      parts = parts.subspan(1);
    }
    if (parts.empty()) break;
    parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + sent;
    parts.front().iov_len -= static_cast<std::size_t>(sent);
  }
  return true;
}

Result<int> connect_to(const std::string& address, int port) {
  const auto parsed = net::parse_host_port(address);
  if (!parsed.ok()) return nobody(address, "is no HOST:PORT");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(parsed->host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return nobody(address, "there is no such host");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, each->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, each->ai_protocol);
    if (socket < 0) continue;
    bool good = ::connect(socket, each->ai_addr, each->ai_addrlen) == 0;
    if (!good && errno == EINPROGRESS) {
      pollfd waits{socket, POLLOUT, 0};
      int why = 0;
      socklen_t size = sizeof(why);
      good = ::poll(&waits, 1, static_cast<int>(kConnectS * 1000)) == 1 &&
             ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &why, &size) == 0 && why == 0;
    }
    if (good) {
      ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) & ~O_NONBLOCK);
      return socket;
    }
    ::close(socket);
  }
  return nobody(address, "nobody listens there");
}

void TcpConnections::end() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
    for (const One& each : all_) {
      if (each.socket >= 0) ::shutdown(each.socket, SHUT_RDWR);
    }
  }
  for (One& each : all_) each.thread.join();
  all_.clear();
}

bool TcpConnections::add(std::function<Result<int>()> connect, std::function<void(const Result<int>& socket)> work) {
  const std::scoped_lock lock(mutex_);
  if (ends_) return false;
  for (auto it = all_.begin(); it != all_.end();) {
    const auto each = it++;
    if (!each->done) continue;
    each->thread.join();  // it has nothing left to do but return
    all_.erase(each);
  }
  if (all_.size() >= kMost) return false;
  One& one = all_.emplace_back();
  try {
    one.thread = std::thread([this, &one, connect = std::move(connect), work = std::move(work)] { run(one, connect, work); });
  } catch (const std::system_error&) {  // no more threads can be started
    all_.pop_back();
    return false;
  }
  return true;
}

void TcpConnections::run(One& one, const std::function<Result<int>()>& connect,
                         const std::function<void(const Result<int>& socket)>& work) {
  Result<int> socket = Error{ErrorCode::kResourceExhausted, "no memory for a connection"};
  try {
    socket = connect();
  } catch (const std::bad_alloc&) {
    // best effort
  }
  {
    const std::scoped_lock lock(mutex_);
    if (socket.ok()) one.socket = *socket;
    if (socket.ok() && ends_) ::shutdown(*socket, SHUT_RDWR);
  }
  try {
    work(socket);
  } catch (const std::bad_alloc&) {
    // Ends this connection; others continue.
  }
  const std::scoped_lock lock(mutex_);
  if (one.socket >= 0) ::close(one.socket);
  one.socket = -1;
  one.done = true;
}

TcpServer::TcpServer(int listener, int port, std::function<void(int socket)> serve)
    : listener_(listener), port_(port), serve_(std::move(serve)), accepting_([this] { accept_all(); }) {}

Result<std::unique_ptr<TcpServer>> TcpServer::open(const std::string& host, const std::string& purpose,
                                                   std::function<void(int socket)> serve) {
  const auto failed = [&] {
    return Error{ErrorCode::kUnavailable, fmt::format("cannot listen on {} for {}: {}", host, purpose, std::strerror(errno))};
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int why = ::getaddrinfo(host.c_str(), "0", &hints, &found); why != 0)
    return Error{ErrorCode::kUnavailable, fmt::format("cannot listen on {} for {}: {}", host, purpose, ::gai_strerror(why))};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
  const int listener = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return failed();
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::bind(listener, found->ai_addr, found->ai_addrlen) != 0 || ::listen(listener, TcpConnections::kMost) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    const Error why = failed();
    ::close(listener);
    return why;
  }
  const auto port = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return std::unique_ptr<TcpServer>(new TcpServer(listener, ntohs(port), std::move(serve)));
}

TcpServer::~TcpServer() {
  ::shutdown(listener_, SHUT_RDWR);  // makes accept() return
  accepting_.join();
  ::close(listener_);
}

void TcpServer::accept_all() {
  for (;;) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) {
      const bool added = connections_.add([socket] { return Result<int>(socket); },
                                          [this](const Result<int>& connection) { serve_(*connection); });
      if (!added) ::close(socket);
    } else if (errno == EINVAL || errno == EBADF) {
      return;  // shut down
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      ::poll(nullptr, 0, 100);  // until other descriptors are closed
    }
  }
}

}  // namespace windlass::worker
