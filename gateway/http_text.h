// Builds the text of HTTP/1.1 heads: the headers that the proxy passes on, and the heads that the gateway writes itself.
#pragma once

#include <string>
#include <string_view>

#include "gateway/net.h"

namespace windlass::gateway {

// Headers passed to a worker, and back to a client, as "Name: value\r\n" lines. All others are dropped, so workers learn
// nothing about clients (credentials, cookies) and clients nothing about workers. To workers: Accept, Content-Type, Traceparent
// and Tracestate. To clients: Cache-Control, Content-Type and Retry-After. Headers named by Connection are dropped too (RFC
// 9110, 7.6.1).
[[nodiscard]] std::string headers_to_worker(const http::fields& fields);
[[nodiscard]] std::string headers_to_client(const http::fields& fields);

// Whether the connection may stay open after the answer. False after HEAD: our answers have a body, and the client expects
// none.
[[nodiscard]] bool stays_open(const HttpRequest& request);

// The client's X-Request-Id if it is safe in a header and a log (1 to 128 letters, digits and "-_.:"); otherwise a new one.
[[nodiscard]] std::string request_id(const http::fields& fields);

}  // namespace windlass::gateway
