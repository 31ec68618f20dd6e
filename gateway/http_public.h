// The public side: OpenAI's paths. Reads what a request is, and either answers it at once or starts an Exchange.
#pragma once

#include <optional>

#include "gateway/http_exchange.h"
#include "gateway/net.h"

namespace windlass::gateway {

// The handler of the public HttpServer. REQUIRES: `proxy` outlives the server.
[[nodiscard]] HttpServer::Handler public_handler(Proxy& proxy);

// Asked before a body is read: whose API key is not known has no claim to the memory that it would take.
[[nodiscard]] std::optional<net::Refusal> admit_to_public(Proxy& proxy, const http::request_header<>& head);

}  // namespace windlass::gateway
