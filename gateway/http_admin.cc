// Serves the four paths of the admin side.
#include "gateway/http_admin.h"

#include "gateway/http_text.h"
#include "metrics/security/secrets.h"

namespace windlass::gateway {
namespace {

constexpr auto kAdminTimeout = std::chrono::seconds(10);

std::string answer(const Proxy& proxy, Dispatcher& dispatcher, const metrics::Registry& registry, const Secrets& secrets,
                   bool open_metrics, const HttpRequest& request) {
  const bool keep = stays_open(request);
  const std::string target(request.target());
  const std::string path = target.substr(0, target.find('?'));
  if (request.method() != http::verb::get)
    return net::simple_response(405, "text/plain", "method: must be GET\n", keep, "Allow: GET\r\n");
  if (path == "/metrics" || path == "/latencies") {
    const auto header = request[http::field::authorization];
    const bool allowed = open_metrics || secrets.token == nullptr ||
                         security::same_secret(security::bearer({header.data(), header.size()}), *secrets.token->current());
    if (!allowed) {
      return net::simple_response(401, "text/plain", "Authorization: must be the installation's bearer token\n", keep,
                                  "WWW-Authenticate: Bearer\r\n");
    }
    if (path == "/latencies")
      return net::simple_response(200, metrics::kExpositionContentType, dispatcher.latencies_page(), keep);
    dispatcher.refresh_gauges();
    return net::simple_response(200, metrics::kExpositionContentType, registry.exposition(), keep);
  }
  if (path == "/health") return net::simple_response(200, "text/plain", "ok\n", keep);
  if (path == "/ready") {
    if (proxy.leaving) return net::simple_response(503, "text/plain", "draining\n", keep);
    if (!dispatcher.router().has_table()) return net::simple_response(503, "text/plain", "no routing table yet\n", keep);
    return net::simple_response(200, "text/plain", "ok\n", keep);
  }
  return net::simple_response(404, "text/plain", "path: must be /metrics, /latencies, /health or /ready\n", keep);
}

asio::awaitable<bool> handle(const Proxy& proxy, Dispatcher& dispatcher, const metrics::Registry& registry,
                             const Secrets& secrets, bool open_metrics, Stream& stream, HttpRequest& request) {
  const std::string text = answer(proxy, dispatcher, registry, secrets, open_metrics, request);
  stream.expires_after(kAdminTimeout);
  error_code error;
  co_await asio::async_write(stream, asio::buffer(text), to(error));
  stream.expires_never();
  co_return stays_open(request) && !error;
}

}  // namespace

HttpServer::Handler admin_handler(const Proxy& proxy, Dispatcher& dispatcher, const metrics::Registry& registry,
                                  const Secrets& secrets, bool open_metrics) {
  return [&proxy, &dispatcher, &registry, &secrets, open_metrics](Stream& stream, HttpRequest& request) {
    return handle(proxy, dispatcher, registry, secrets, open_metrics, stream, request);
  };
}

}  // namespace windlass::gateway
