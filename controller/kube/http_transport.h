// HttpTransport: the one door through which all of the controller's I/O passes.
//
// An HTTP error status is a response; only a failed transport is an Error (kUnavailable, kDeadlineExceeded, kCancelled).
// CurlTransport is the real one; tests put a fake API server behind this interface, at the wire, so that the real client code
// runs. Streams are polled, never called back: the core stays single-threaded and can be simulated.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/base/result.h"

namespace windlass::kube {

struct HttpRequest {
  std::string method = "GET";
  std::string url = {};  // absolute: scheme://host:port/path?query
  std::map<std::string, std::string> headers = {};
  std::string body = {};
  double timeout_s = 30;  // for the whole exchange; for a stream: to connect and to get the response's head
  // Of the response's body; one of more is an error (kResourceExhausted). 0: as many as the transport takes. Not for streams.
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
    std::string bytes;      // what has arrived since the last poll; may be empty
    bool finished = false;  // the peer has closed; no more will come
  };

  virtual ~HttpStream() = default;  // destroying a stream cancels it

  // The response's status, once known; 0 before. A status other than 200 is followed by its body as bytes.
  [[nodiscard]] virtual int status() const = 0;

  // Its headers, names in lower case; none before the status is known.
  [[nodiscard]] virtual std::map<std::string, std::string> headers() const = 0;

  // Never blocks. An Error says that the connection broke.
  [[nodiscard]] virtual Result<Poll> poll() = 0;
};

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;

  // Sends one request and waits for the whole response.
  [[nodiscard]] virtual Result<HttpResponse> send(const HttpRequest& request) = 0;

  // Sends all at once and waits for all; results stand in the order of the requests. One that fails does not hold up the rest.
  [[nodiscard]] virtual std::vector<Result<HttpResponse>> send_all(const std::vector<HttpRequest>& requests) = 0;

  // Opens a stream. Returns at once; the head's arrival shows in HttpStream::status().
  [[nodiscard]] virtual Result<std::unique_ptr<HttpStream>> stream(const HttpRequest& request) = 0;
};

}  // namespace windlass::kube
