// HttpClient: calls to other workers over HTTP, on one thread, with connections that are kept. Thread-safe.
//
// Boost.Beast rather than cpprestsdk's client (docs/decisions/2026-11-23-workers-call-over-beast.md): a call says how much it
// allows, and the connection of an answer that has more is closed.
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
  double timeout_s = 0;        // a worker that says nothing for so long is taken for lost
  std::size_t most_bytes = 0;  // of the answer's body
  // The other worker may be told twice: else a call that is out whole is not made again.
  bool repeatable = true;
};

struct HttpAnswer {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;

  // Empty where there is none of that name.
  [[nodiscard]] std::string header(std::string_view name) const;
};

// Error: kUnavailable saying why there is no answer.
using HttpAnswered = std::function<void(Result<HttpAnswer> answer)>;

class HttpClient {
 public:
  // `token`: shown to every worker that is called; empty: none is.
  explicit HttpClient(std::string token = {});
  ~HttpClient();  // end()
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `answered` is called on a thread of cpprestsdk's, and may take its time. A call over a kept connection that turns out to be
  // broken before anything of an answer came is made once more, over a new one, with what is left of its patience.
  void ask(HttpCall call, HttpAnswered answered);
  // Calls under way are dropped without a word; those that follow are answered at once. REQUIRES: not from what drops the last
  // `answered` of a call.
  void end();

 private:
  class Io;

  std::mutex mutex_;
  std::unique_ptr<Io> io_;  // null: ended
};

}  // namespace windlass::worker
