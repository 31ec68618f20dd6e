// Connections to workers, kept alive and used again. Last in, first out, so that surplus ones grow old and are closed.
//
// A connection belongs to one exchange at a time; release() gives it back only when the answer was read to its end and the
// worker keeps the connection. One thread, as all of the shell.
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

  // For each address of a name. Well below what a person would call hanging: a node that is gone does not refuse, it is silent.
  static constexpr std::chrono::microseconds kConnectTimeout = std::chrono::seconds(1);

  // An idle connection that the worker has not closed, or null.
  [[nodiscard]] std::unique_ptr<UpstreamConnection> take_idle(const std::string& address);

  [[nodiscard]] std::unique_ptr<UpstreamConnection> make() { return std::make_unique<UpstreamConnection>(io_); }

  // Tries every address that the name has. Error: of the last one. `connection` may be closed meanwhile to break it off.
  [[nodiscard]] asio::awaitable<error_code> connect(UpstreamConnection& connection, std::string address,
                                                    std::chrono::microseconds limit = kConnectTimeout);

  void release(const std::string& address, std::unique_ptr<UpstreamConnection> connection);

  // Closes the idle connections to that address: nothing that was open before it fell silent is to be trusted.
  void forget(const std::string& address) { idle_.erase(address); }

  [[nodiscard]] std::size_t idle_count() const;

 private:
  void drop_old();

  asio::io_context& io_;
  std::map<std::string, std::vector<std::unique_ptr<UpstreamConnection>>> idle_;
};

// Of a worker's answer; its body is read piece by piece.
using AnswerParser = http::response_parser<http::buffer_body>;

// Reads some more of a body; returns how many bytes landed in `into`.
[[nodiscard]] asio::awaitable<std::size_t> read_body(UpstreamConnection& upstream, AnswerParser& parser, char* into,
                                                     std::size_t size, error_code& error);

// Every endpoint of an address; numeric ones without a resolver's thread.
[[nodiscard]] asio::awaitable<std::vector<tcp::endpoint>> resolve_all(HostPort address, error_code& error);

// True when the peer has closed it or sent something: for an idle connection both mean that it is of no use.
[[nodiscard]] bool closed_or_readable(tcp::socket& socket);

}  // namespace windlass::gateway
