// HttpService: an HttpServer on a thread of its own, for programs whose handlers run on other threads and answer later.
//
//   HttpService service(options, [](ServerCall call) { call.answer({200, "ok\n", "text/plain"}); });
//   service.open({"127.0.0.1", "8080"});
//
// A handler runs on one of a few threads and waits for nothing there. It, or whoever it gives the call to, answers once: whole,
// or as a body that is written piece by piece. A call that everybody lets go unanswered is answered with 500.
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
  std::string body;  // of a body that is written piece by piece: its first piece
  std::string content_type;
  std::vector<std::pair<std::string, std::string>> headers;  // "Connection: close" ends the connection after the answer
};

struct ServiceCore;

// A request and the place for its answer. Copies are the same one; any thread.
class ServerCall {
 public:
  // Whether the answer has left whole.
  using Done = std::function<void(bool sent)>;

  [[nodiscard]] const std::string& method() const;
  [[nodiscard]] const std::string& target() const;  // path and query, as they came
  [[nodiscard]] const std::string& path() const;    // as it came, without the query
  // Decoded; empty where there is none of that name.
  [[nodiscard]] std::string query(std::string_view name) const;
  [[nodiscard]] std::string header(std::string_view name) const;
  // To be moved from by one.
  [[nodiscard]] std::string& body() const;

  // The whole answer. `done` is called once, from the service's thread. A call that is answered already ignores it, but for
  // `done`.
  void answer(HttpResponse response, Done done = nullptr) const;
  // Head and first piece of a body of a length that is not known yet. finish() or break_off() ends it.
  void begin(HttpResponse response, Done done = nullptr) const;
  // Ignored where nothing was begun, and after the end. More than 64 MiB that the peer does not take break the answer off.
  void write(std::string piece) const;
  void finish() const;
  // The peer sees the connection break: what it has is not the whole answer. Before begin(), it sees no answer at all.
  void break_off() const;

  // Calls it, from the service's thread, when the peer leaves before the answer is over. One at a time.
  void on_left(std::function<void()> left) const;
  // Runs it on one of the service's threads; drops it when the service has closed.
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

  // Error: kUnavailable, naming the address.
  [[nodiscard]] Result<void> open(const HostPort& address);
  [[nodiscard]] HostPort bound() const;

  // No new connections; what is in hand goes on for at most so long and is broken off then. False: something was. Handlers that
  // run are waited for. REQUIRES: not from a handler.
  bool close(double limit_s);

 private:
  struct Io;
  std::shared_ptr<ServiceCore> core_;
  std::unique_ptr<Io> io_;
  Handler handler_;
};

}  // namespace windlass::net
