// Stream: a TCP connection with or without TLS; its readers and writers need not know which.
//
// An AsyncReadStream and AsyncWriteStream for Asio and Beast. Timeouts and closing act on the TCP connection underneath. One
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ssl/context.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include "metrics/net/asio.h"

namespace windlass::net {

namespace ssl = boost::asio::ssl;

class Stream {
 public:
  using executor_type = beast::tcp_stream::executor_type;

  explicit Stream(asio::io_context& io) : tcp_(io) {}
  explicit Stream(tcp::socket socket) : tcp_(std::move(socket)) {}

  // Starts TLS as a server. The context must not change afterwards; the stream keeps it alive.
  [[nodiscard]] asio::awaitable<error_code> accept_tls(std::shared_ptr<ssl::context> context);
  // Starts TLS as a client and verifies the peer's certificate for this name.
  [[nodiscard]] asio::awaitable<error_code> connect_tls(std::shared_ptr<ssl::context> context, std::string name);
  // Shuts TLS down, so that the peer knows that the data is complete. Returns immediately without TLS.
  [[nodiscard]] asio::awaitable<void> end_tls();

  [[nodiscard]] executor_type get_executor() { return tcp_.get_executor(); }
  [[nodiscard]] tcp::socket& socket() { return tcp_.socket(); }
  [[nodiscard]] beast::tcp_stream& tcp_layer() { return tcp_; }
  // Timeout of each read and write from now on.
  template <class Duration>
  void expires_after(Duration limit) {
    tcp_.expires_after(limit);
  }
  void expires_never() { tcp_.expires_never(); }
  // Also forgets the TLS session, so that the stream may connect again.
  void close();

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& into) {
          if (tls_.has_value()) {
            tls_->async_read_some(into, std::move(handler));
          } else {
            tcp_.async_read_some(into, std::move(handler));
          }
        },
        token, buffers);
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& from) {
          if (tls_.has_value()) {
            tls_->async_write_some(from, std::move(handler));
          } else {
            tcp_.async_write_some(from, std::move(handler));
          }
        },
        token, buffers);
  }

 private:
  beast::tcp_stream tcp_;
  std::shared_ptr<ssl::context> context_;
  std::optional<beast::ssl_stream<beast::tcp_stream&>> tls_;
};

}  // namespace windlass::net
