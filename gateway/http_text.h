// Heads of HTTP/1.1 messages as text: which headers pass through a proxy, and the heads that the gateway writes itself.
#pragma once

#include <string>
#include <string_view>

#include "gateway/net.h"

namespace windlass::gateway {

// The end-to-end headers as "Name: value\r\n" lines: without hop-by-hop ones (RFC 9110, 7.6.1: Connection and those it names,
// Keep-Alive, TE, Trailer, Transfer-Encoding, Upgrade, Proxy-*), Host, Content-Length, Expect, and X-Windlass-* and
// X-Request-Id, which are the gateway's own to set.
[[nodiscard]] std::string end_to_end_headers(const http::fields& fields);

// The client's X-Request-Id if it may stand in a header and a log (1 to 128 letters, digits and "-_.:"); else a new one.
[[nodiscard]] std::string request_id(const http::fields& fields);

// A whole response; `extra` holds complete header lines.
[[nodiscard]] std::string simple_response(int status, std::string_view content_type, std::string_view body, bool keep_alive,
                                          std::string_view extra = {});

[[nodiscard]] std::string_view reason_phrase(int status);

}  // namespace windlass::gateway
