// HttpTransport: all of the controller's I/O goes through this interface.
//
// An HTTP error status is a response; only a transport failure is an Error (kUnavailable, kDeadlineExceeded, kCancelled).
// CurlTransport is the real implementation. Tests put a fake API server behind this interface, so that the real client code
// runs. Streams are polled and never call back: the core stays single-threaded and can be simulated.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::kube {

struct HttpRequest {
  std::string method = "GET";
  std::string url = {};  // absolute: scheme://host:port/path?query
  std::map<std::string, std::string> headers = {};
  std::string body = {};
  double timeout_s = 30;  // for the whole exchange; for a stream, to connect and receive the response's head
  // Limit of the response's body; a larger one is an error (kResourceExhausted). 0: the transport's own limit. Not for streams.
  std::size_t max_bytes = 0;
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// A response whose body arrives over time (a watch).
class HttpStream {
 public:
  struct Poll {
    std::string bytes;      // bytes since the last poll; may be empty
    bool finished = false;  // the peer has closed the stream
  };

  virtual ~HttpStream() = default;  // destroying a stream cancels it

  // The response's status; 0 until it is known. A status other than 200 is followed by its body as bytes.
  [[nodiscard]] virtual int status() const = 0;

  // The response's headers, names in lower case; empty until the status is known.
  [[nodiscard]] virtual std::map<std::string, std::string> headers() const = 0;

  // Never blocks. Error: the connection broke.
  [[nodiscard]] virtual Result<Poll> poll() = 0;
};

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;

  // Sends one request and waits for the whole response.
  [[nodiscard]] virtual Result<HttpResponse> send(const HttpRequest& request) = 0;

  // Receives the response to the request with this index. REQUIRES: it does not call the transport.
  using Take = std::function<void(std::size_t index, Result<HttpResponse> response)>;

  // Sends all requests concurrently. Hands over each response as it arrives, in any order, on the caller's thread, and returns
  // after the last one. A caller that needs a few numbers of each body so never holds all bodies at once. A failure does not
  // delay the others. This implementation sends one request after another.
  virtual void send_each(const std::vector<HttpRequest>& requests, const Take& take) {
    for (std::size_t i = 0; i < requests.size(); ++i) take(i, send(requests[i]));
  }

  // Like send_each(), and returns all responses in the order of the requests.
  [[nodiscard]] std::vector<Result<HttpResponse>> send_all(const std::vector<HttpRequest>& requests) {
    std::vector<Result<HttpResponse>> all(requests.size(), Error{ErrorCode::kInternal, "not sent"});
    send_each(requests, [&](std::size_t index, Result<HttpResponse> response) { all[index] = std::move(response); });
    return all;
  }

  // Opens a stream. Returns immediately; HttpStream::status() shows when the head has arrived.
  [[nodiscard]] virtual Result<std::unique_ptr<HttpStream>> stream(const HttpRequest& request) = 0;
};

}  // namespace windlass::kube
