// The admin side: /metrics, /latencies (fine bins of them: metrics/latency_bins.h), /health (200 while alive) and /ready (200
// once it has a routing table and is not draining).
#pragma once

#include "gateway/http_exchange.h"
#include "gateway/net.h"
#include "gateway/secrets.h"
#include "metrics/registry.h"

namespace windlass::gateway {

// The handler of the admin HttpServer. /metrics and /latencies ask for the installation's token, if there is one and
// open_metrics is not set. REQUIRES: all four outlive the server.
[[nodiscard]] HttpServer::Handler admin_handler(const Proxy& proxy, Dispatcher& dispatcher, const metrics::Registry& registry,
                                                const Secrets& secrets, bool open_metrics);

}  // namespace windlass::gateway
