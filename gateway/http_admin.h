// The admin side: /metrics, /latencies (fine latency bins, see metrics/latency_bins.h), /health (200 while the process runs)
// and /ready (200 once the gateway has a routing table and is not draining).
#pragma once

#include "gateway/http_exchange.h"
#include "gateway/net.h"
#include "gateway/secrets.h"
#include "metrics/registry.h"

namespace windlass::gateway {

// The handler of the admin HttpServer. /metrics and /latencies require the installation's token if there is one, unless
// open_metrics is set. REQUIRES: all four references outlive the server.
[[nodiscard]] HttpServer::Handler admin_handler(const Proxy& proxy, Dispatcher& dispatcher, const metrics::Registry& registry,
                                                const Secrets& secrets, bool open_metrics);

}  // namespace windlass::gateway
