// HttpService: an HttpServer on its own thread, for programs whose handlers run on other threads and answer later.
//
//   HttpService service(options, [](ServerCall call) { call.answer({200, "ok\n", "text/plain"}); });
//   service.open({"127.0.0.1", "8080"});
//
// Handlers run on a small thread pool and must not block. The handler, or whoever it passes the call to, answers once: as a
// whole, or with a body that is written piece by piece. A call that is released without an answer gets a 500.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/net/host_port.h"
#include "metrics/net/http_server.h"
#include "planner/base/result.h"

namespace windlass::net {

struct HttpResponse {
  int status = 200;
  std::string body;  // for a body written piece by piece: its first piece
  std::string content_type;
  std::vector<std::pair<std::string, std::string>> headers;  // "Connection: close" closes the connection after the answer
};

struct ServiceCore;

// A request and the place for its answer. Copies share both; any thread.
class ServerCall {
 public:
  // Called at the end of an answer. `sent`: the whole answer was sent.
  using Done = std::function<void(bool sent)>;

  [[nodiscard]] const std::string& method() const;
  [[nodiscard]] const std::string& target() const;  // path and query, as received
  [[nodiscard]] const std::string& path() const;    // as received, without the query
  // Decoded; empty when there is no such parameter.
  [[nodiscard]] std::string query(std::string_view name) const;
  [[nodiscard]] std::string header(std::string_view name) const;
  // One caller may move from it.
  [[nodiscard]] std::string& body() const;

  // Sends the whole answer. `done` is called once, on the service's thread. Ignored, apart from calling `done`, if the call is
  // already answered.
  void answer(HttpResponse response, Done done = nullptr) const;
  // Sends the head and first piece of a body of unknown length. finish() or break_off() ends it.
  void begin(HttpResponse response, Done done = nullptr) const;
  // Sends the next piece of the body. Ignored before begin() and after the end. Breaks off when the peer leaves more than 64
  // MiB unread.
  void write(std::string piece) const;
  void finish() const;
  // Breaks the connection, so that the peer knows that the answer is incomplete. Before begin(), the peer gets no answer at
  // all.
  void break_off() const;

  // Calls `left` on the service's thread if the peer leaves before the answer is complete. Only one at a time.
  void on_left(std::function<void()> left) const;
  // Runs `work` on one of the service's threads; drops it if the service is closed.
  void post(std::function<void()> work) const;

 private:
  friend class HttpService;
  struct Request;
  explicit ServerCall(std::shared_ptr<Request> request) : request_(std::move(request)) {}
  std::shared_ptr<Request> request_;
};

class HttpService {
 public:
  using Handler = std::function<void(ServerCall call)>;

  HttpService(HttpServer::Options options, Handler handler, int threads);
  ~HttpService();  // close(0)
  HttpService(const HttpService&) = delete;
  HttpService& operator=(const HttpService&) = delete;

  // Error: kUnavailable, with the address.
  [[nodiscard]] Result<void> open(const HostPort& address);
  [[nodiscard]] HostPort bound() const;

  // Accepts no new connections. Current calls get at most limit_s and are then broken off; returns false if any was. Waits for
  // running handlers. REQUIRES: not called from a handler.
  bool close(double limit_s);

 private:
  struct Io;
  std::shared_ptr<ServiceCore> core_;
  std::unique_ptr<Io> io_;
  Handler handler_;
};

}  // namespace windlass::net
