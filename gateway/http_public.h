// The public side: OpenAI's paths. Parses each request, and either answers it directly or starts an Exchange.
#pragma once

#include <optional>

#include "gateway/http_exchange.h"
#include "gateway/net.h"

namespace windlass::gateway {

// The handler of the public HttpServer. REQUIRES: `proxy` outlives the server.
[[nodiscard]] HttpServer::Handler public_handler(Proxy& proxy);

// Called before a body is read, so that a request with an unknown API key takes no memory for its body.
[[nodiscard]] std::optional<net::Refusal> admit_to_public(Proxy& proxy, const http::request_header<>& head);

}  // namespace windlass::gateway
