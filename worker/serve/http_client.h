// HttpClient: HTTP calls to other workers, on one thread, with kept-alive connections. Thread-safe.
//
// Uses Boost.Beast instead of cpprestsdk's client (docs/decisions/2026-11-23-workers-call-over-beast.md), so that each call can
// limit the size of its answer; a larger answer closes the connection.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

struct HttpCall {
  std::string address;  // "host:port"
  std::string method = "GET", target, body;
  double timeout_s = 0;       // a worker that is silent for this long counts as lost
  std::size_t max_bytes = 0;  // limit of the answer's body
  // Whether the call may reach the other worker twice. If false, a call that has been sent completely is not retried.
  bool repeatable = true;
};

struct HttpAnswer {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;

  // Empty if there is no such header.
  [[nodiscard]] std::string header(std::string_view name) const;
};

// Error: kUnavailable with the reason why there is no answer.
using HttpAnswered = std::function<void(Result<HttpAnswer> answer)>;

class HttpClient {
 public:
  // `token`: sent to every worker called; empty: none.
  explicit HttpClient(std::string token = {});
  ~HttpClient();  // calls end()
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Calls `answered` on a thread of cpprestsdk's pool, which it may block. If a kept-alive connection breaks before any of the
  // answer arrives, the call is retried once over a new connection, within its remaining time.
  void ask(HttpCall call, HttpAnswered answered);
  // Drops calls in progress without calling `answered`; later calls fail immediately. REQUIRES: not called while the last
  // `answered` of a call is being destroyed.
  void end();

 private:
  class Io;

  std::mutex mutex_;
  std::unique_ptr<Io> io_;  // null: ended
};

}  // namespace windlass::worker
