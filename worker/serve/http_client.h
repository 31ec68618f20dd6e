// HttpClient: calls to other workers over HTTP, on one thread, with connections that are kept. Thread-safe.
//
// Boost.Beast rather than cpprestsdk's client, which holds whatever comes in memory, however much that is: a call says how much
// it allows, and the connection of an answer that has more is closed.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
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

class HttpClient : public std::enable_shared_from_this<HttpClient> {
 public:
  [[nodiscard]] static std::shared_ptr<HttpClient> make();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `answered` is called on a thread of cpprestsdk's, and may take its time; the client lives until then. A call over a kept
  // connection that turns out to be broken before anything of an answer came is made once more, over a new one: the other
  // worker, if it is there, may have been told twice.
  void ask(HttpCall call, HttpAnswered answered);

 private:
  class Io;
  HttpClient();

  const std::unique_ptr<Io> io_;
};

}  // namespace windlass::worker
