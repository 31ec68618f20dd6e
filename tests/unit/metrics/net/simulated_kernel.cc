// The wrapped calls are at the end; each uses the existing SimulatedKernel, if there is one.
#include "tests/unit/metrics/net/simulated_kernel.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

namespace windlass::net {
namespace {

std::atomic<SimulatedKernel*> the_kernel = nullptr;

constexpr auto kStart = std::chrono::hours(24);
constexpr std::uint16_t kPort = 80;

int failed(int error) {
  errno = error;
  return -1;
}

bool has_events(int fd) {
  pollfd now{fd, POLLIN, 0};
  return ::poll(&now, 1, 0) > 0;
}

}  // namespace

extern "C" {
int __real_socket(int domain, int type, int protocol);
int __real_bind(int fd, const sockaddr* address, socklen_t size);
int __real_getsockname(int fd, sockaddr* address, socklen_t* size);
int __real_getpeername(int fd, sockaddr* address, socklen_t* size);
int __real_accept(int fd, sockaddr* address, socklen_t* size);
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
int __real_close(int fd);
int __real_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);
int __real_epoll_wait(int epoll, epoll_event* events, int size, int timeout);
int __real_timerfd_create(int clock, int flags);
int __real_timerfd_settime(int fd, int flags, const itimerspec* when, itimerspec* before);
SimulatedKernel::Time __real__ZNSt6chrono3_V212steady_clock3nowEv();
}

SimulatedKernel::SimulatedKernel() : now_(kStart) { the_kernel = this; }
SimulatedKernel::~SimulatedKernel() { the_kernel = nullptr; }

SimulatedKernel::Opened SimulatedKernel::connect(const Link& link) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  std::size_t id = 0;
  {
    const std::scoped_lock lock(mutex_);
    __real_getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    id = connections_.size();
    connections_.emplace_back(link);
    arriving_.push_back(id);
  }
  const int fd = __real_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) std::abort();
  return {id, fd};
}

void SimulatedKernel::reset(std::size_t id) {
  const std::scoped_lock lock(mutex_);
  reset_locked(connections_[id]);
}

void SimulatedKernel::reset_locked(Connection& connection) {
  connection.was_reset = true;
  // Wakes whoever waits at either end.
  if (connection.fd >= 0) ::shutdown(connection.fd, SHUT_RDWR);
}

void SimulatedKernel::fail_next_accept() {
  const std::scoped_lock lock(mutex_);
  accept_fails_ = true;
}

bool SimulatedKernel::accepted(std::size_t id) const {
  const std::scoped_lock lock(mutex_);
  return connections_[id].accepted;
}

bool SimulatedKernel::was_reset(std::size_t id) const {
  const std::scoped_lock lock(mutex_);
  return connections_[id].was_reset;
}

bool SimulatedKernel::closed(std::size_t id) const {
  const std::scoped_lock lock(mutex_);
  return connections_[id].closed;
}

SimulatedKernel::Time SimulatedKernel::now() const {
  const std::scoped_lock lock(mutex_);
  return now_;
}

void SimulatedKernel::advance_to(Time time) {
  const std::scoped_lock lock(mutex_);
  now_ = std::max(now_, time);
  if (!timer_end_ || *timer_end_ > now_) return;
  timer_end_.reset();
  ::eventfd_write(timer_, 1);
}

bool SimulatedKernel::idle() const {
  const std::scoped_lock lock(mutex_);
  return waiting_epoll_ >= 0 && !has_events(waiting_epoll_);
}

void SimulatedKernel::wait_until_idle(std::chrono::system_clock::time_point limit) {
  std::unique_lock lock(mutex_);
  waits_.wait_until(lock, limit, [&] { return waiting_epoll_ >= 0 && !has_events(waiting_epoll_); });
}

int SimulatedKernel::socket(int type) {
  const std::scoped_lock lock(mutex_);
  return listener_ = __real_socket(AF_UNIX, type, 0);
}

int SimulatedKernel::bind(int fd) {
  const sockaddr_un none{AF_UNIX, {}};  // the kernel finds a name
  return __real_bind(fd, reinterpret_cast<const sockaddr*>(&none), sizeof(sa_family_t));
}

void SimulatedKernel::fill_address(int fd, sockaddr* address, socklen_t* size) const {
  const std::scoped_lock lock(mutex_);
  sockaddr_in shown{};
  shown.sin_family = AF_INET;
  const auto found = by_fd_.find(fd);
  shown.sin_addr.s_addr = htonl(found == by_fd_.end() ? INADDR_LOOPBACK : connections_[found->second].link.address);
  shown.sin_port = htons(kPort);
  std::memcpy(address, &shown, std::min<std::size_t>(*size, sizeof shown));
  *size = sizeof shown;
}

int SimulatedKernel::accept(int listener) {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(accept_fails_, false)) return failed(EMFILE);
  const int fd = __real_accept(listener, nullptr, nullptr);
  if (fd < 0) return fd;
  const std::size_t id = arriving_.front();
  arriving_.pop_front();
  by_fd_[fd] = id;
  Connection& connection = connections_[id];
  connection.fd = fd;
  connection.accepted = true;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &connection.link.send_buffer_bytes, sizeof connection.link.send_buffer_bytes);
  if (connection.was_reset || connection.link.reset_at_read == 0U) reset_locked(connection);
  return fd;
}

SimulatedKernel::Connection* SimulatedKernel::find(int fd) {
  const auto found = by_fd_.find(fd);
  return found == by_fd_.end() ? nullptr : &connections_[found->second];
}

bool SimulatedKernel::knows(int fd) const {
  const std::scoped_lock lock(mutex_);
  return fd == listener_ || by_fd_.find(fd) != by_fd_.end();
}

namespace {

// The first bytes of a message.
struct Cut {
  Cut(const msghdr& message, std::size_t max) : iov(message.msg_iov, message.msg_iov + message.msg_iovlen), header(message) {
    for (iovec& part : iov) {
      part.iov_len = std::min(part.iov_len, max - bytes);
      bytes += part.iov_len;
    }
    header.msg_iov = iov.data();
  }

  std::vector<iovec> iov;
  msghdr header;
  std::size_t bytes = 0;
};

// The number of bytes that pass in one call.
std::size_t some(std::minstd_rand random, std::size_t max, const std::optional<std::size_t>& reset_at, std::size_t used) {
  const std::size_t n = std::uniform_int_distribution<std::size_t>(1, max)(random);
  return reset_at ? std::min(n, *reset_at - used) : n;
}

}  // namespace

ssize_t SimulatedKernel::receive(int fd, const msghdr& message, int flags) {
  const std::scoped_lock lock(mutex_);
  Connection& connection = *find(fd);
  if (connection.was_reset) return failed(ECONNRESET);
  const Link& link = connection.link;
  Cut cut(message, some(connection.reads, link.max_read_bytes, link.reset_at_read, connection.read_bytes));
  const ssize_t n = __real_recvmsg(fd, &cut.header, flags);
  if (n <= 0 || (flags & MSG_PEEK) != 0) return n;
  connection.reads();  // counted only now, because the number of empty reads depends on thread timing
  connection.read_bytes += static_cast<std::size_t>(n);
  if (connection.read_bytes == link.reset_at_read) reset_locked(connection);
  return n;
}

ssize_t SimulatedKernel::send(int fd, const msghdr& message, int flags) {
  const std::scoped_lock lock(mutex_);
  Connection& connection = *find(fd);
  if (connection.was_reset) return failed(ECONNRESET);
  const Link& link = connection.link;
  Cut cut(message, some(connection.writes, link.max_write_bytes, link.reset_at_written, connection.written_bytes));
  const ssize_t n = __real_sendmsg(fd, &cut.header, flags);
  if (n <= 0) return n;
  connection.writes();
  connection.written_bytes += static_cast<std::size_t>(n);
  if (connection.written_bytes == link.reset_at_written) reset_locked(connection);
  // After a short write Asio waits for an event; act as if the peer had read more at this moment.
  if (connection.epoll >= 0) __real_epoll_ctl(connection.epoll, EPOLL_CTL_MOD, fd, &connection.event);
  return n;
}

void SimulatedKernel::close(int fd) {
  const std::scoped_lock lock(mutex_);
  if (fd == listener_) listener_ = -1;
  Connection* connection = find(fd);
  if (connection == nullptr) return;
  connection->fd = -1;
  connection->closed = true;
  by_fd_.erase(fd);
}

void SimulatedKernel::epoll_ctl(int epoll, int operation, int fd, const epoll_event* event) {
  const std::scoped_lock lock(mutex_);
  Connection* connection = find(fd);
  if (connection == nullptr) return;
  connection->epoll = operation == EPOLL_CTL_DEL ? -1 : epoll;
  connection->event = *event;
}

int SimulatedKernel::epoll_wait(int epoll, epoll_event* events, int size) {
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      waiting_epoll_ = epoll;
    }
    waits_.notify_all();
    // Leaves the events in place for wait_until_idle().
    pollfd now{epoll, POLLIN, 0};
    ::poll(&now, 1, -1);
    {
      const std::scoped_lock lock(mutex_);
      waiting_epoll_ = -1;
    }
    const int n = __real_epoll_wait(epoll, events, size, 0);
    if (n != 0) return n;
  }
}

int SimulatedKernel::timer_create() {
  const std::scoped_lock lock(mutex_);
  return timer_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void SimulatedKernel::timer_set(const itimerspec& when, bool absolute) {
  const std::scoped_lock lock(mutex_);
  eventfd_t expired = 0;
  ::eventfd_read(timer_, &expired);
  timer_end_.reset();
  if (absolute) {  // Asio's way to say "now"
    ::eventfd_write(timer_, 1);
  } else {
    timer_end_ = now_ + std::chrono::seconds(when.it_value.tv_sec) + std::chrono::nanoseconds(when.it_value.tv_nsec);
  }
}

extern "C" {

int __wrap_socket(int domain, int type, int protocol) {
  SimulatedKernel* const kernel = the_kernel;
  if (kernel != nullptr && domain == AF_INET) return kernel->socket(type);
  if (kernel != nullptr && domain == AF_INET6) return failed(EAFNOSUPPORT);
  return __real_socket(domain, type, protocol);
}

int __wrap_bind(int fd, const sockaddr* address, socklen_t size) {
  SimulatedKernel* const kernel = the_kernel;
  return kernel != nullptr && kernel->knows(fd) ? kernel->bind(fd) : __real_bind(fd, address, size);
}

int __wrap_getsockname(int fd, sockaddr* address, socklen_t* size) {
  SimulatedKernel* const kernel = the_kernel;
  if (kernel == nullptr || !kernel->knows(fd)) return __real_getsockname(fd, address, size);
  kernel->fill_address(fd, address, size);
  return 0;
}

int __wrap_getpeername(int fd, sockaddr* address, socklen_t* size) {
  SimulatedKernel* const kernel = the_kernel;
  if (kernel == nullptr || !kernel->knows(fd)) return __real_getpeername(fd, address, size);
  kernel->fill_address(fd, address, size);
  return 0;
}

int __wrap_accept(int fd, sockaddr* address, socklen_t* size) {
  SimulatedKernel* const kernel = the_kernel;
  if (kernel == nullptr || !kernel->knows(fd)) return __real_accept(fd, address, size);
  const int accepted = kernel->accept(fd);
  if (accepted >= 0 && address != nullptr) kernel->fill_address(accepted, address, size);
  return accepted;
}

ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  SimulatedKernel* const kernel = the_kernel;
  return kernel != nullptr && kernel->knows(fd) ? kernel->receive(fd, *message, flags) : __real_recvmsg(fd, message, flags);
}

ssize_t __wrap_recv(int fd, void* bytes, std::size_t size, int flags) {
  iovec part{bytes, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return __wrap_recvmsg(fd, &message, flags);
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  SimulatedKernel* const kernel = the_kernel;
  return kernel != nullptr && kernel->knows(fd) ? kernel->send(fd, *message, flags) : __real_sendmsg(fd, message, flags);
}

ssize_t __wrap_send(int fd, const void* bytes, std::size_t size, int flags) {
  iovec part{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return __wrap_sendmsg(fd, &message, flags);
}

int __wrap_close(int fd) {
  SimulatedKernel* const kernel = the_kernel;
  if (kernel != nullptr) kernel->close(fd);
  return __real_close(fd);
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  SimulatedKernel* const kernel = the_kernel;
  if (kernel != nullptr) kernel->epoll_ctl(epoll, operation, fd, event);
  return __real_epoll_ctl(epoll, operation, fd, event);
}

int __wrap_epoll_wait(int epoll, epoll_event* events, int size, int timeout) {
  SimulatedKernel* const kernel = the_kernel;
  return kernel != nullptr && timeout < 0 ? kernel->epoll_wait(epoll, events, size)
                                          : __real_epoll_wait(epoll, events, size, timeout);
}

int __wrap_timerfd_create(int clock, int flags) {
  SimulatedKernel* const kernel = the_kernel;
  return kernel != nullptr ? kernel->timer_create() : __real_timerfd_create(clock, flags);
}

int __wrap_timerfd_settime(int fd, int flags, const itimerspec* when, itimerspec* before) {
  SimulatedKernel* const kernel = the_kernel;
  if (kernel == nullptr || !kernel->is_timer(fd)) return __real_timerfd_settime(fd, flags, when, before);
  kernel->timer_set(*when, (flags & TFD_TIMER_ABSTIME) != 0);
  return 0;
}

SimulatedKernel::Time __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  SimulatedKernel* const kernel = the_kernel;
  return kernel != nullptr ? kernel->now() : __real__ZNSt6chrono3_V212steady_clock3nowEv();
}

}  // extern "C"

}  // namespace windlass::net
