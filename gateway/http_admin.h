// The admin side: /metrics, /health (200 while alive) and /ready (200 once it has a routing table and is not draining).
#pragma once

#include "gateway/http_exchange.h"
#include "gateway/http_server.h"
#include "metrics/registry.h"

namespace windlass::gateway {

// The handler of the admin HttpServer. REQUIRES: all three outlive the server.
[[nodiscard]] HttpServer::Handler admin_handler(const Proxy& proxy, Dispatcher& dispatcher, const metrics::Registry& registry);

}  // namespace windlass::gateway
