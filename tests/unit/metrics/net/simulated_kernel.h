// SimulatedKernel: answers the socket and time calls of the one server in this process in any way that a kernel may: short
// reads and writes, resets at any byte, failing accepts, and a clock that the test controls.
//
// The linker redirects the program's own calls here (--wrap in CMakeLists.txt); the server's code is the production code. Real
// Unix sockets underneath pass bytes on immediately: what was sent can be read. Without a SimulatedKernel all calls go to the
// system. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace windlass::net {

// How a connection behaves towards the server.
struct Link {
  std::uint64_t seed = 1;     // for the sizes of its reads and writes
  std::uint32_t address = 0;  // the peer's, in host order
  std::size_t max_read_bytes = 65536;
  std::size_t max_write_bytes = 65536;
  int send_buffer_bytes = 65536;
  // Number of bytes after which the connection is reset.
  std::optional<std::size_t> reset_at_read, reset_at_written;
};

class SimulatedKernel {
 public:
  using Time = std::chrono::steady_clock::time_point;

  SimulatedKernel();
  ~SimulatedKernel();  // REQUIRES: the server was destroyed first
  SimulatedKernel(const SimulatedKernel&) = delete;
  SimulatedKernel& operator=(const SimulatedKernel&) = delete;

  struct Opened {
    std::size_t id;
    int fd;  // the peer's end, non-blocking; the caller owns it
  };
  // REQUIRES: the server listens.
  [[nodiscard]] Opened connect(const Link& link);
  void reset(std::size_t id);
  // The next accept fails for lack of descriptors.
  void fail_next_accept();

  [[nodiscard]] bool accepted(std::size_t id) const;
  [[nodiscard]] bool was_reset(std::size_t id) const;
  [[nodiscard]] bool closed(std::size_t id) const;  // by the server

  [[nodiscard]] Time now() const;
  void advance_to(Time time);
  // True when the server's thread waits for events and there are none; false after the limit.
  [[nodiscard]] bool idle() const;
  void wait_until_idle(std::chrono::system_clock::time_point limit);

  // The system calls.
  int socket(int type);
  int bind(int fd);
  void fill_address(int fd, sockaddr* address, socklen_t* size) const;
  int accept(int listener);
  ssize_t receive(int fd, const msghdr& message, int flags);
  ssize_t send(int fd, const msghdr& message, int flags);
  void close(int fd);
  void epoll_ctl(int epoll, int operation, int fd, const epoll_event* event);
  int epoll_wait(int epoll, epoll_event* events, int size);
  int timer_create();
  void timer_set(const itimerspec& when, bool absolute);
  [[nodiscard]] bool knows(int fd) const;
  [[nodiscard]] bool is_timer(int fd) const { return fd == timer_; }

 private:
  struct Connection {
    explicit Connection(const Link& with) : link(with), reads(with.seed), writes(with.seed + 1) {}
    const Link link;
    std::minstd_rand reads, writes;
    int fd = -1;  // the server's end
    int epoll = -1;
    epoll_event event{};
    std::size_t read_bytes = 0, written_bytes = 0;
    bool accepted = false, was_reset = false, closed = false;
  };

  [[nodiscard]] Connection* find(int fd);
  void reset_locked(Connection& connection);

  mutable std::mutex mutex_;
  Time now_;
  int listener_ = -1;
  bool accept_fails_ = false;
  std::deque<Connection> connections_;
  std::deque<std::size_t> arriving_;  // connected and not accepted
  std::map<int, std::size_t> by_fd_;
  int waiting_epoll_ = -1;  // the server's thread waits on it
  std::condition_variable waits_;
  int timer_ = -1;
  std::optional<Time> timer_end_;
};

}  // namespace windlass::net
