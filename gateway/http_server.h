// HttpServer: accepts connections and reads requests from them, one after the other; what a request means is the handler's.
//
// HTTP/1.1 with keep-alive, over TLS where a context is given. Pipelined requests wait in their order: the next one is read
// when the last answer is written. Limits: a head of 16 KiB (431), a body of 16 MiB (413), 30 s to send a request once begun,
// 75 s of idleness between two; and the bodies of all requests in hand together (503). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "gateway/net_stream.h"
#include "gateway/options.h"
#include "planner/base/result.h"

namespace windlass::gateway {

using HttpRequest = http::request<http::string_body>;

class HttpServer {
 public:
  // Answers the request on the stream; false: the connection is to be closed. The request may be moved from.
  using Handler = std::function<asio::awaitable<bool>(Stream& stream, HttpRequest& request)>;

  // Asked for every connection; null: no TLS.
  using TlsContext = std::function<std::shared_ptr<ssl::context>()>;

  HttpServer(asio::io_context& io, Handler handler, TlsContext tls = nullptr, std::size_t max_body_bytes = kMaxBodyBytes);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds, listens and begins to accept. Error: kUnavailable, naming the address.
  [[nodiscard]] Result<void> listen(const HostPort& address);
  [[nodiscard]] HostPort bound() const { return bound_; }

  // No new connections, and idle ones are closed; a connection with a request in hand goes on. May be called twice.
  void stop_accepting();

 private:
  struct Session;
  struct Bodies;
  asio::awaitable<void> accept_loop();
  asio::awaitable<void> serve(std::shared_ptr<Session> session);
  asio::awaitable<bool> serve_one(std::shared_ptr<Session> session);

  asio::io_context& io_;
  Handler handler_;
  TlsContext tls_;
  tcp::acceptor acceptor_;
  HostPort bound_;
  bool stopping_ = false;
  std::shared_ptr<Bodies> bodies_;
  std::set<Session*> sessions_;
};

}  // namespace windlass::gateway
