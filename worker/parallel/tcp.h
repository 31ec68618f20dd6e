// TCP connections between workers, for data that is too slow over HTTP: blocking sockets with timeouts, one thread each. To end
// a connection, shut its socket down. Linux only.
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

// Limits, in seconds, how long a call may wait without any progress. The same limit applies to the call's total time beyond
// what its bytes take at 100 kB/s. Disables Nagle's algorithm.
void set_limits(int socket, double receive_s, double send_s);
// Returns false if the connection broke or timed out (then errno is EAGAIN or EWOULDBLOCK).
[[nodiscard]] bool receive_all(int socket, void* to, std::size_t bytes);
[[nodiscard]] bool send_all(int socket, std::span<iovec> parts);  // modifies `parts`

// Connects to `port` at the host of another worker's "host:port". Waits at most a second. Error: kUnavailable.
[[nodiscard]] Result<int> connect_to(const std::string& address, int port);

// A set of threads with one connection each.
class TcpConnections {
 public:
  TcpConnections() = default;
  TcpConnections(const TcpConnections&) = delete;
  TcpConnections& operator=(const TcpConnections&) = delete;
  ~TcpConnections() { end(); }

  // Runs `work` on a new thread with the result of `connect`, a descriptor or an error; closes the descriptor afterwards.
  // Returns false, without calling either, if there are kMost threads already, or after end().
  [[nodiscard]] bool add(std::function<Result<int>()> connect, std::function<void(const Result<int>& socket)> work);
  // Shuts all connections down and waits for the threads. REQUIRES: not called from one of them.
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

// Listens, with one thread per connection.
class TcpServer {
 public:
  // Listens on a free port. `serve` is called on the threads of connections. Error: kUnavailable, naming the address and the
  // purpose.
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
