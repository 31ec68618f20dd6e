// CurlTransport: HttpTransport over libcurl.
//
// Connections are kept and used again, by send() and send_all() alike. Streams are served by one I/O thread, which this object
// owns; it fills a bounded buffer per stream and pauses the peer when the reader lags. send(), send_all() and stream() may be
// called from any thread (send and send_all take turns). Destroying a stream cancels its transfer; every stream must be
// destroyed before its transport (one that is not ends with kCancelled). Headers are never logged and never stand in an error:
// they hold bearer tokens.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/kube/http_transport.h"
#include "controller/kube/tls.h"
#include "planner/base/result.h"

namespace windlass::kube {

struct CurlOptions {
  TlsOptions tls = {};
  std::string proxy_url = {};  // empty: none; the environment's proxies are not used
  double connect_timeout_s = 10;
  // What one stream holds before its peer is paused. Its reader comes once a step, and an API server that can send nothing for
  // some seconds ends the watch: all that ten thousand pods report during a step of many writes has to fit.
  std::size_t max_stream_buffer_bytes = std::size_t{32} << 20;
  std::size_t max_response_bytes = std::size_t{256} << 20;  // a larger body of send() is an error (kResourceExhausted)
  std::size_t max_responses_bytes = std::size_t{256}
                                    << 20;  // of all bodies of one send_all(); those that come later fail alike
  std::size_t max_parallel = 64;            // requests of one send_all() in flight at once

  // Called from the I/O thread, without a lock held, when a stream has something new to poll. Must be quick and must not call
  // the transport; an app's loop is woken with it.
  std::function<void()> on_activity = {};
};

class CurlTransport final : public HttpTransport {
 public:
  explicit CurlTransport(CurlOptions options);
  ~CurlTransport() override;
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;

  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request) override;
  [[nodiscard]] std::vector<Result<HttpResponse>> send_all(const std::vector<HttpRequest>& requests) override;
  [[nodiscard]] Result<std::unique_ptr<HttpStream>> stream(const HttpRequest& request) override;

  // A renewed client certificate: requests from now on present it; connections made with the old one are not used again.
  void set_client_certificate(ClientCertificate certificate);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace windlass::kube
