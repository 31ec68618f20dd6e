// HttpServer: the one HTTP server of gateway, controller and worker. It accepts connections and reads requests from them, one
// after the other; what a request means is the handler's.
//
// HTTP/1.1 with keep-alive, over TLS where a context is given. Pipelined requests wait in their order: the next one is read
// when the last answer is written. Limits hold before anybody is authenticated: on a head, its time and its form
// (request_head.h), a body and the bodies of all requests in hand, idleness, connections in all and of one peer. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "metrics/net/host_port.h"
#include "metrics/net/http_limits.h"
#include "metrics/net/memory_budget.h"
#include "metrics/net/stream.h"
#include "planner/base/result.h"

namespace windlass::net {

// With what its body holds of the server's memory, wherever it is moved.
struct HttpRequest : http::request<http::string_body> {
  using http::request<http::string_body>::request;
  MemoryBudget::Part memory;
};

// An answer to what never becomes a request. Status 0: the connection is closed without one.
struct Refusal {
  int status = 0;
  std::string message;  // for a person
  std::string code;     // for a program
  std::string headers;  // more header lines, each with its CRLF
};

class HttpServer {
 public:
  // Answers the request on the stream; false: the connection is to be closed. The request may be moved from. Of a target that
  // is a whole URI it sees path and query.
  using Handler = std::function<asio::awaitable<bool>(Stream& stream, HttpRequest& request)>;

  struct Options {
    HttpLimits limits = {};
    // Of the bodies of all requests in hand (else 503), and of what handlers count into it.
    std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>(std::size_t{512} << 20U);
    // Asked for every connection; null: no TLS.
    std::function<std::shared_ptr<ssl::context>()> tls = nullptr;
    // Asked once a head is there and before its body is read: why it is refused, or how large its body may be instead.
    std::function<std::optional<Refusal>(const http::request_header<>& head)> admit = nullptr;
    std::function<std::size_t(const http::request_header<>& head)> max_body = nullptr;
    // The JSON that says why a request is refused.
    std::function<std::string(const Refusal& refusal)> refusal_body;
  };

  HttpServer(asio::io_context& io, Handler handler, Options options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds, listens and begins to accept; at "::" from IPv4 too, and from IPv4 alone where the machine has no IPv6. Error:
  // kUnavailable, naming the address.
  [[nodiscard]] Result<void> listen(const HostPort& address);
  // Takes over a socket that listens already, and owns it; nothing is accepted before accept(). Connections wait in the socket
  // meanwhile. Error: kInvalidArgument, it is no such socket.
  [[nodiscard]] Result<void> adopt(int listening_socket);
  void accept();  // REQUIRES: adopt(), once
  [[nodiscard]] HostPort bound() const { return bound_; }

  // No new connections, and idle ones are closed; a connection with a request in hand goes on. May be called twice.
  void stop_accepting();

  [[nodiscard]] std::size_t connections() const { return sessions_.size(); }

 private:
  struct Session;
  using Sessions = std::list<Session*>;

  void note_bound();
  asio::awaitable<void> accept_loop();
  asio::awaitable<void> serve(std::shared_ptr<Session> session);
  asio::awaitable<bool> serve_one(Session& session);
  asio::awaitable<bool> read_head(Session& session, Refusal& refused);
  asio::awaitable<bool> read_body(Session& session, http::request_parser<http::string_body>& parser, MemoryBudget::Part& part,
                                  Refusal& refused);
  asio::awaitable<void> refuse(Session& session, const Refusal& refused);
  [[nodiscard]] bool make_room(const std::string& peer);
  [[nodiscard]] bool close_longest_waiting(const std::string& peer);
  void waits(Session& session);
  void works(Session& session);
  void warn(const std::string& text);

  asio::io_context& io_;
  Handler handler_;
  Options options_;
  tcp::acceptor acceptor_;
  HostPort bound_;
  bool stopping_ = false;
  Sessions sessions_;
  Sessions waiting_;  // without a whole head: those that may be closed for others, the one that waits longest first
  std::map<std::string, std::size_t> of_peer_;
  std::chrono::steady_clock::time_point warned_{};
};

// The most connections that this process may hold of those wanted: its limit of open files, which is raised as far as it may
// be, leaves as many for connections of its own.
[[nodiscard]] std::size_t connections_within_file_limit(std::size_t wanted);

// A whole answer as text; `headers` holds complete header lines.
[[nodiscard]] std::string simple_response(int status, std::string_view content_type, std::string_view body, bool keep_alive,
                                          std::string_view headers = {});

[[nodiscard]] std::string_view reason_phrase(int status);

}  // namespace windlass::net
