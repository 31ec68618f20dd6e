// GatewayTransport is the HttpTransport for reading metrics pages. It adds the installation's token to requests to gateways,
// and to no others: a worker must never see the token. A gateway is recognized by the admin address that it announced. If the
// gateway announced TLS, its requests use TLS.
//
// A changed CA file replaces the inner transport. Called by one thread, the core's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "controller/kube/curl_transport.h"
#include "controller/kube/http_transport.h"
#include "controller/reconcile/routing_publisher.h"
#include "metrics/security/reloaded.h"

namespace windlass::controller {

struct GatewayTransportOptions {
  std::shared_ptr<security::Reloaded<std::string>> token;  // null: none
  std::shared_ptr<security::Reloaded<std::string>> ca;     // null: the system's store
  std::string server_name;                                 // expected in the gateways' certificates
};

class GatewayTransport final : public kube::HttpTransport {
 public:
  // `publisher` outlives this.
  GatewayTransport(const RoutingPublisher& publisher, GatewayTransportOptions options);

  [[nodiscard]] Result<kube::HttpResponse> send(const kube::HttpRequest& request) override;
  void send_each(const std::vector<kube::HttpRequest>& requests, const Take& take) override;
  [[nodiscard]] Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest& request) override;

 private:
  [[nodiscard]] std::vector<kube::HttpRequest> secured(std::vector<kube::HttpRequest> requests) const;
  void follow_ca();

  const RoutingPublisher& publisher_;
  GatewayTransportOptions options_;
  std::shared_ptr<const std::string> ca_;
  std::unique_ptr<kube::CurlTransport> transport_;
};

}  // namespace windlass::controller
