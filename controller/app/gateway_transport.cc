// See gateway_transport.h.
#include "controller/app/gateway_transport.h"

#include <map>

#include "metrics/host/clock.h"

namespace windlass::controller {
namespace {

constexpr std::size_t kMaxPagesBytes = std::size_t{128} << 20U;  // for all pages that arrive at the same time

constexpr std::string_view kHttp = "http://";

// "http://HOST:PORT/path" -> "HOST:PORT"; empty for another scheme.
std::string address_of(const std::string& url) {
  if (url.compare(0, kHttp.size(), kHttp) != 0) return "";
  return url.substr(kHttp.size(), url.find('/', kHttp.size()) - kHttp.size());
}

}  // namespace

GatewayTransport::GatewayTransport(const RoutingPublisher& publisher, GatewayTransportOptions options)
    : publisher_(publisher), options_(std::move(options)) {
  follow_ca();
}

void GatewayTransport::follow_ca() {
  const auto ca = options_.ca == nullptr ? nullptr : options_.ca->current();
  if (transport_ != nullptr && ca == ca_) return;
  ca_ = ca;
  kube::CurlOptions curl;
  curl.max_responses_bytes = kMaxPagesBytes;
  if (ca_ != nullptr) curl.tls.ca_pem = *ca_;
  curl.tls.server_name = options_.server_name;
  transport_ = std::make_unique<kube::CurlTransport>(std::move(curl));
}

std::vector<kube::HttpRequest> GatewayTransport::secured(std::vector<kube::HttpRequest> requests) const {
  std::map<std::string, bool> tls;  // by admin address
  for (const GatewayPeer& peer : publisher_.gateways(now().monotonic_s)) tls[peer.admin_address] = peer.admin_tls;
  for (kube::HttpRequest& request : requests) {
    const auto gateway = tls.find(address_of(request.url));
    if (gateway == tls.end()) continue;
    if (gateway->second) request.url = "https://" + request.url.substr(kHttp.size());
    if (options_.token != nullptr) request.headers["Authorization"] = "Bearer " + *options_.token->current();
  }
  return requests;
}

Result<kube::HttpResponse> GatewayTransport::send(const kube::HttpRequest& request) {
  follow_ca();
  return transport_->send(secured({request}).front());
}

void GatewayTransport::send_each(const std::vector<kube::HttpRequest>& requests, const Take& take) {
  follow_ca();
  transport_->send_each(secured(requests), take);
}

// Scrapes need no streams, and replacing the inner transport would break an open one.
Result<std::unique_ptr<kube::HttpStream>> GatewayTransport::stream(const kube::HttpRequest&) {
  return Error{ErrorCode::kFailedPrecondition, "the transport for scrapes has no streams"};
}

}  // namespace windlass::controller
