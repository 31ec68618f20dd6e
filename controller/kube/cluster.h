// Cluster is a complete connection to an API server: it builds and connects CurlTransport, credentials and KubeClient from one
// ClusterConfig.
//
// Used by the composition root and by tests against a real API server. Owns all three; streams opened through the client must
// be destroyed first. Passes client certificates that a credential plugin renews to the transport.
#pragma once

#include <functional>
#include <memory>

#include "controller/kube/curl_transport.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/kube_config.h"

namespace windlass::kube {

struct ClusterOptions {
  KubeClientOptions client = {};
  std::function<void()> on_activity = {};  // see CurlOptions::on_activity
};

class Cluster {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Cluster>> connect(ClusterConfig config, ClusterOptions options = {});
  ~Cluster();

  [[nodiscard]] KubeClient& client() { return *client_; }
  [[nodiscard]] CurlTransport& transport() { return *transport_; }
  [[nodiscard]] const std::string& name_space() const { return name_space_; }

 private:
  Cluster() = default;

  std::string name_space_;
  std::unique_ptr<CredentialSource> credentials_;
  std::unique_ptr<CurlTransport> transport_;
  std::unique_ptr<CredentialSource> forwarder_;  // between client and credentials: passes renewed certificates to the transport
  std::unique_ptr<KubeClient> client_;
};

}  // namespace windlass::kube
