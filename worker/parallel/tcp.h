// TCP connections between workers, for what HTTP is too slow for: blocking sockets, each with a limit to how long it may block,
// and a thread for each. Whoever ends one shuts its socket down. Linux alone.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include <sys/uio.h>

#include "planner/base/result.h"

namespace windlass::worker {

// How long one call may wait to receive, and to send, anything at all, and, all of it together, beyond what it takes at 100
// kB/s; what is sent leaves at once.
void set_limits(int socket, double receive_s, double send_s);
// False: it broke off, or nothing passed for so long (then errno is EAGAIN or EWOULDBLOCK).
[[nodiscard]] bool receive_all(int socket, void* to, std::size_t bytes);
[[nodiscard]] bool send_all(int socket, std::span<iovec> parts);  // changes the parts

// That port at the host of "host:port", which is another worker's address. Waits a second at most. Error: kUnavailable.
[[nodiscard]] Result<int> connect_to(const std::string& address, int port);

// Threads that have a connection each.
class TcpConnections {
 public:
  TcpConnections() = default;
  TcpConnections(const TcpConnections&) = delete;
  TcpConnections& operator=(const TcpConnections&) = delete;
  ~TcpConnections() { end(); }

  // Runs `work` with what `connect` gives, a descriptor or why there is none, on a thread of its own; the descriptor is closed
  // after it. False, and neither is called, when there are kMost already, or after end().
  [[nodiscard]] bool add(std::function<Result<int>()> connect, std::function<void(const Result<int>& socket)> work);
  // Shuts all of them down and waits for the threads. REQUIRES: none of them calls it.
  void end();
  static constexpr std::size_t kMost = 256;

 private:
  struct One {
    int socket = -1;
    bool done = false;
    std::thread thread;
  };
  void run(One& one, const std::function<Result<int>()>& connect, const std::function<void(const Result<int>& socket)>& work);

  std::mutex mutex_;
  std::list<One> all_;
  bool ends_ = false;
};

// Listens, and has a thread for each connection.
class TcpServer {
 public:
  // On a port that is free. `serve` is called on the threads of connections. Error: kUnavailable, naming the address and what
  // it was for.
  [[nodiscard]] static Result<std::unique_ptr<TcpServer>> open(const std::string& host, const std::string& purpose,
                                                               std::function<void(int socket)> serve);
  // Shuts all connections down and waits for their threads.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  [[nodiscard]] int port() const { return port_; }

 private:
  TcpServer(int listener, int port, std::function<void(int socket)> serve);
  void accept_all();

  const int listener_;
  const int port_;
  const std::function<void(int socket)> serve_;
  TcpConnections connections_;
  std::thread accepting_;
};

}  // namespace windlass::worker
