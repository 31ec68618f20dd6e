// The public side: OpenAI's paths. Reads what a request is, and either answers it at once or starts an Exchange.
#pragma once

#include "gateway/http_exchange.h"
#include "gateway/http_server.h"

namespace windlass::gateway {

// The handler of the public HttpServer. REQUIRES: `proxy` outlives the server.
[[nodiscard]] HttpServer::Handler public_handler(Proxy& proxy);

}  // namespace windlass::gateway
