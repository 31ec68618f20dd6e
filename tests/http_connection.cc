// Implements http_connection.h with POSIX sockets.
#include "tests/http_connection.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/loopback.h"

namespace windlass::test_client {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

bool wait_until(const std::function<bool()>& condition, double deadline_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

Connection::Connection(int fd) : fd_(fd) {
  timeval limit{static_cast<time_t>(kDeadlineS), 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::optional<Connection> Connection::connect(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto address = loopback(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    return std::nullopt;
  }
  return Connection(fd);
}

bool Connection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool Connection::fill() {
  std::array<char, 65536> bytes;
  const auto n = ::recv(fd_, bytes.data(), bytes.size(), 0);
  if (n <= 0) return false;
  buffer_.append(bytes.data(), static_cast<std::size_t>(n));
  return true;
}

std::optional<std::string> Connection::read_line() {
  for (auto at = buffer_.find('\n'); at == std::string::npos; at = buffer_.find('\n')) {
    if (!fill()) return std::nullopt;
  }
  const auto at = buffer_.find('\n');
  std::string line = buffer_.substr(0, at);
  buffer_.erase(0, at + 1);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

std::optional<std::string> Connection::read_exact(std::size_t n) {
  while (buffer_.size() < n) {
    if (!fill()) return std::nullopt;
  }
  std::string bytes = buffer_.substr(0, n);
  buffer_.erase(0, n);
  return bytes;
}

bool Connection::peer_closes() {
  std::array<char, 4096> bytes;
  while (true) {
    const auto n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n == 0) return true;
    if (n < 0) return errno == ECONNRESET;
  }
}

void Connection::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Connection::shut_down() {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void Connection::reset() {
  const linger hard{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close();
}

void Connection::finish_writing() { ::shutdown(fd_, SHUT_WR); }

int Message::status() const { return start_line.size() > 12 ? std::atoi(start_line.c_str() + 9) : 0; }

std::string Message::target() const {
  const auto begin = start_line.find(' ') + 1;
  return start_line.substr(begin, start_line.find(' ', begin) - begin);
}

std::string Message::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::optional<Message> read_head(Connection& connection) {
  Message message;
  auto line = connection.read_line();
  if (!line) return std::nullopt;
  message.start_line = *line;
  while (true) {
    line = connection.read_line();
    if (!line) return std::nullopt;
    if (line->empty()) return message;
    const auto colon = line->find(':');
    const auto value = line->find_first_not_of(' ', colon + 1);
    message.headers[lower(line->substr(0, colon))] = value == std::string::npos ? "" : line->substr(value);
  }
}

std::optional<std::string> read_chunk(Connection& connection) {
  const auto size = connection.read_line();
  if (!size || size->empty()) return std::nullopt;
  auto bytes = connection.read_exact(std::stoul(*size, nullptr, 16));
  if (!bytes || !connection.read_line()) return std::nullopt;
  return bytes;
}

std::optional<Message> read_message(Connection& connection) {
  auto message = read_head(connection);
  if (!message) return std::nullopt;
  if (message->header("transfer-encoding") == "chunked") {
    while (true) {
      const auto bytes = read_chunk(connection);
      if (!bytes) return std::nullopt;
      if (bytes->empty()) return message;
      message->body += *bytes;
    }
  }
  const std::string length = message->header("content-length");
  if (length.empty()) return message;
  const auto body = connection.read_exact(std::stoul(length));
  if (!body) return std::nullopt;
  message->body = *body;
  return message;
}

std::optional<Message> ask(int port, const std::string& request) {
  auto connection = Connection::connect(port);
  if (!connection || !connection->write(request)) return std::nullopt;
  return read_message(*connection);
}

std::string get(const std::string& target) { return "GET " + target + " HTTP/1.1\r\nHost: test\r\n\r\n"; }

std::string post(const std::string& target, const std::string& body, const std::string& extra_headers) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}",
                     target, extra_headers, body.size(), body);
}

}  // namespace windlass::test_client
