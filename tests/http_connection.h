// A client's side of HTTP for tests: blocking, byte by byte where a test wants it, and as wrong as a test wants it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace windlass::test_client {

inline constexpr double kDeadlineS = 180;

// Polls until true; false when the deadline passes.
[[nodiscard]] bool wait_until(const std::function<bool()>& condition, double deadline_s = kDeadlineS);

// A blocking TCP connection on loopback. Reads give up after kDeadlineS.
class Connection {
 public:
  explicit Connection(int fd);
  ~Connection() { close(); }
  Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}
  Connection& operator=(Connection&&) = delete;

  [[nodiscard]] static std::optional<Connection> connect(int port);

  bool write(std::string_view bytes);
  // Without the line's end; nullopt at the end of the connection.
  std::optional<std::string> read_line();
  std::optional<std::string> read_exact(std::size_t n);
  // True when the peer closes (or resets) within the deadline; what it sends before that is dropped.
  bool peer_closes();
  void close();
  // Ends both directions, so that a thread which reads wakes up.
  void shut_down();
  // Closes with a reset instead of an orderly end.
  void reset();
  // Nothing more will be written; reading goes on.
  void finish_writing();

 private:
  bool fill();

  int fd_;
  std::string buffer_;
};

struct Message {
  std::string start_line;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  [[nodiscard]] int status() const;          // of a response
  [[nodiscard]] std::string target() const;  // of a request
  [[nodiscard]] std::string header(const std::string& name) const;
};

[[nodiscard]] std::optional<Message> read_head(Connection& connection);
// One chunk of a chunked body; empty: the last one. nullopt: the connection broke.
[[nodiscard]] std::optional<std::string> read_chunk(Connection& connection);
// Head and whole body; nullopt when it breaks off.
[[nodiscard]] std::optional<Message> read_message(Connection& connection);

// One request on a connection of its own, and its whole answer.
[[nodiscard]] std::optional<Message> ask(int port, const std::string& request);
[[nodiscard]] std::string get(const std::string& target);
[[nodiscard]] std::string post(const std::string& target, const std::string& body, const std::string& extra_headers = {});
}  // namespace windlass::test_client
