// CurlTransport implements HttpTransport with libcurl.
//
// send() and send_each() share and reuse connections. One I/O thread, owned by this object, serves the streams. It fills a
// bounded buffer per stream and pauses the peer if the reader lags. Any thread may call send(), send_each() and stream(); send
// and send_each run one at a time. Destroying a stream cancels its transfer. Every stream must be destroyed before its
// transport; a remaining one ends with kCancelled. Headers are never logged and never appear in errors, because they hold
// bearer tokens.
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
  std::string proxy_url = {};  // empty: none; proxies from the environment are not used
  double connect_timeout_s = 10;
  // Bytes that a stream buffers before it pauses its peer. The reader polls once per step, and an API server that cannot send
  // for some seconds ends the watch. So the buffer must hold everything that ten thousand pods report during a step with many
  // writes.
  std::size_t max_stream_buffer_bytes = std::size_t{32} << 20;
  std::size_t max_response_bytes = std::size_t{256} << 20;  // a larger body in send() is an error (kResourceExhausted)
  // for the bodies of one send_each() that have not been handed over yet, together; bodies beyond it are errors too
  std::size_t max_responses_bytes = std::size_t{256} << 20;
  std::size_t max_parallel = 64;  // concurrent requests of one send_each()

  // Called on the I/O thread, without a lock held, when a stream has new data to poll. It must be quick and must not call the
  // transport. Apps use it to wake their loop.
  std::function<void()> on_activity = {};
};

class CurlTransport final : public HttpTransport {
 public:
  explicit CurlTransport(CurlOptions options);
  ~CurlTransport() override;
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;

  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request) override;
  void send_each(const std::vector<HttpRequest>& requests, const Take& take) override;
  [[nodiscard]] Result<std::unique_ptr<HttpStream>> stream(const HttpRequest& request) override;

  // Sets a renewed client certificate for future requests. Connections made with the old one are not reused.
  void set_client_certificate(ClientCertificate certificate);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace windlass::kube
