// HttpServer: the HTTP server of gateway, controller and worker. It accepts connections and reads requests one after the other;
// the handler answers them.
//
// HTTP/1.1 with keep-alive, over TLS if a context is given. Pipelined requests wait in order: the next one is read when the
// last answer is written. Limits apply before authentication: on the head, its time and its form (request_head.h), on each body
// and all bodies together, on idle time, and on connections in total and per peer. One thread.
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

// A request, with the share of the server's memory budget that its body holds; the share moves with it.
struct HttpRequest : http::request<http::string_body> {
  using http::request<http::string_body>::request;
  MemoryBudget::Part memory;
};

// An answer to something that is not a valid request. Status 0: close the connection without an answer.
struct Refusal {
  int status = 0;
  std::string message;  // for people
  std::string code;     // for programs
  std::string headers;  // additional header lines, each with its CRLF
};

class HttpServer {
 public:
  // Answers the request on the stream; returns false to close the connection. It may move from the request. If the target is a
  // whole URI, the handler sees its path and query.
  using Handler = std::function<asio::awaitable<bool>(Stream& stream, HttpRequest& request)>;

  struct Options {
    HttpLimits limits = {};
    // Limits the memory of the bodies of current requests (beyond: 503) and of what handlers charge to it.
    std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>(std::size_t{512} << 20U);
    // Called for every connection; null: no TLS.
    std::function<std::shared_ptr<ssl::context>()> tls = nullptr;
    // Both are called when the head is complete, before the body is read. admit() may refuse the request; max_body() returns
    // the limit for its body.
    std::function<std::optional<Refusal>(const http::request_header<>& head)> admit = nullptr;
    std::function<std::size_t(const http::request_header<>& head)> max_body = nullptr;
    // Returns the JSON body of a refusal.
    std::function<std::string(const Refusal& refusal)> refusal_body;
  };

  HttpServer(asio::io_context& io, Handler handler, Options options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds, listens and begins to accept. At "::" it also accepts IPv4, and only IPv4 if the machine has no IPv6. Error:
  // kUnavailable, naming the address.
  [[nodiscard]] Result<void> listen(const HostPort& address);
  // Takes ownership of a socket that already listens. Nothing is accepted before accept(); connections wait in the socket's
  // backlog. Error: kInvalidArgument when it is not such a socket.
  [[nodiscard]] Result<void> adopt(int listening_socket);
  void accept();  // REQUIRES: adopt() was called; call once
  [[nodiscard]] HostPort bound() const { return bound_; }

  // Accepts no new connections and closes idle ones; a connection with a running request continues. May be called twice.
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
  Sessions waiting_;  // without a complete head: may be closed for others, longest waiting first
  std::map<std::string, std::size_t> of_peer_;
  std::chrono::steady_clock::time_point warned_{};
};

// The number of connections, up to `wanted`, that this process may accept. Raises the limit of open files as far as possible;
// keeps 64 of them, and half of the rest, for other files and outgoing connections.
[[nodiscard]] std::size_t connections_within_file_limit(std::size_t wanted);

// A complete answer as text; `headers` holds whole header lines.
[[nodiscard]] std::string simple_response(int status, std::string_view content_type, std::string_view body, bool keep_alive,
                                          std::string_view headers = {});

[[nodiscard]] std::string_view reason_phrase(int status);

}  // namespace windlass::net
