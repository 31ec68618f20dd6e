// Stream: a TCP connection, with or without TLS around it. What reads and writes need not know which.
//
// An AsyncReadStream and AsyncWriteStream for Asio and Beast. Time limits and closing act on the TCP connection below. One
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

  // Speaks TLS from here on. The context must not change afterwards; it lives as long as the stream needs it.
  [[nodiscard]] asio::awaitable<error_code> accept_tls(std::shared_ptr<ssl::context> context);
  // As a client that verifies the peer's certificate for this name.
  [[nodiscard]] asio::awaitable<error_code> connect_tls(std::shared_ptr<ssl::context> context, std::string name);
  // Says goodbye, so that the peer knows that nothing was cut off. At once where there is no TLS.
  [[nodiscard]] asio::awaitable<void> end_tls();

  [[nodiscard]] executor_type get_executor() { return tcp_.get_executor(); }
  [[nodiscard]] tcp::socket& socket() { return tcp_.socket(); }
  [[nodiscard]] beast::tcp_stream& tcp_layer() { return tcp_; }
  // Of each read and write from here on.
  template <class Duration>
  void expires_after(Duration limit) {
    tcp_.expires_after(limit);
  }
  void expires_never() { tcp_.expires_never(); }
  // Also forgets the TLS session: the stream may connect anew.
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
