// Pool of kept-alive connections to workers. Last in, first out, so surplus connections age and are closed.
//
// A connection belongs to one exchange at a time. release() returns it only when the answer was read to its end and the worker
// keeps the connection open. Runs on the shell's single thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/net.h"
#include "gateway/options.h"

namespace windlass::gateway {

struct UpstreamConnection {
  explicit UpstreamConnection(asio::io_context& io) : stream(io) {}

  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool reused = false;
  std::chrono::steady_clock::time_point idle_since;

  void close() {
    error_code ignored;
    stream.socket().close(ignored);
  }
};

class UpstreamPool {
 public:
  explicit UpstreamPool(asio::io_context& io) : io_(io) {}

  // For each address of a name. Short, because a dead node does not refuse connections; it is silent.
  static constexpr std::chrono::microseconds kConnectTimeout = std::chrono::seconds(1);

  // An idle connection that the worker has not closed, or null.
  [[nodiscard]] std::unique_ptr<UpstreamConnection> take_idle(const std::string& address);

  [[nodiscard]] std::unique_ptr<UpstreamConnection> make() { return std::make_unique<UpstreamConnection>(io_); }

  // Tries every address of the name. Error: of the last one tried. The caller may close `connection` to stop it.
  [[nodiscard]] asio::awaitable<error_code> connect(UpstreamConnection& connection, std::string address,
                                                    std::chrono::microseconds limit = kConnectTimeout);

  void release(const std::string& address, std::unique_ptr<UpstreamConnection> connection);

  // Closes the idle connections to that address: connections opened before it fell silent cannot be trusted.
  void forget(const std::string& address) { idle_.erase(address); }

  [[nodiscard]] std::size_t idle_count() const;

 private:
  void drop_old();

  asio::io_context& io_;
  std::map<std::string, std::vector<std::unique_ptr<UpstreamConnection>>> idle_;
};

// Parses a worker's answer; the body is read piece by piece.
using AnswerParser = http::response_parser<http::buffer_body>;

// Reads more of a body into `into`; returns the number of bytes read.
[[nodiscard]] asio::awaitable<std::size_t> read_body(UpstreamConnection& upstream, AnswerParser& parser, char* into,
                                                     std::size_t size, error_code& error);

// All endpoints of an address; a numeric address needs no resolver thread.
[[nodiscard]] asio::awaitable<std::vector<tcp::endpoint>> resolve_all(HostPort address, error_code& error);

// True when the peer closed the connection or sent data. Either makes an idle connection unusable.
[[nodiscard]] bool closed_or_readable(tcp::socket& socket);

}  // namespace windlass::gateway
