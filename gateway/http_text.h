// Heads of HTTP/1.1 messages as text: which headers pass through a proxy, and the heads that the gateway writes itself.
#pragma once

#include <string>
#include <string_view>

#include "gateway/net.h"

namespace windlass::gateway {

// What passes to a worker, and back to a client, as "Name: value\r\n" lines; of everything else a worker learns nothing of its
// clients (credentials, cookies), and clients nothing of workers. To workers: Accept, Content-Type, Traceparent and Tracestate.
// To clients: Cache-Control, Content-Type and Retry-After. None that Connection names (RFC 9110, 7.6.1).
[[nodiscard]] std::string headers_to_worker(const http::fields& fields);
[[nodiscard]] std::string headers_to_client(const http::fields& fields);

// Whether the connection may stay open after the answer: not after HEAD, to which our answers have a body that nobody expects.
[[nodiscard]] bool stays_open(const HttpRequest& request);

// The client's X-Request-Id if it may stand in a header and a log (1 to 128 letters, digits and "-_.:"); else a new one.
[[nodiscard]] std::string request_id(const http::fields& fields);

}  // namespace windlass::gateway
