// Wires one connection to an API server.
#include "controller/kube/cluster.h"

#include <utility>

namespace windlass::kube {
namespace {

// Passes renewed client certificates to the transport before each request that asks for the token.
class CertificateForwarder final : public CredentialSource {
 public:
  CertificateForwarder(CredentialSource& source, CurlTransport& transport) : source_(source), transport_(transport) {}

  Result<std::string> bearer_token(double now_s) override {
    Result<std::string> token = source_.bearer_token(now_s);
    if (!token.ok()) return token;
    WINDLASS_ASSIGN_OR_RETURN(std::optional<ClientCertificate> certificate, source_.client_certificate(now_s));
    if (certificate && certificate != given_) {
      transport_.set_client_certificate(*certificate);
      given_ = std::move(certificate);
    }
    return token;
  }
  Result<std::optional<ClientCertificate>> client_certificate(double now_s) override {
    return source_.client_certificate(now_s);
  }
  void invalidate() override { source_.invalidate(); }

 private:
  CredentialSource& source_;
  CurlTransport& transport_;
  std::optional<ClientCertificate> given_;
};

}  // namespace

Cluster::~Cluster() = default;

Result<std::unique_ptr<Cluster>> Cluster::connect(ClusterConfig config, ClusterOptions options) {
  if (!config.credentials) return Error{ErrorCode::kInvalidArgument, "cluster: the configuration has no credential source"};
  std::unique_ptr<Cluster> cluster(new Cluster());
  cluster->name_space_ = config.name_space;
  cluster->credentials_ = std::move(config.credentials);
  CurlOptions curl;
  curl.tls = std::move(config.tls);
  curl.proxy_url = std::move(config.proxy_url);
  curl.on_activity = std::move(options.on_activity);
  cluster->transport_ = std::make_unique<CurlTransport>(std::move(curl));
  cluster->forwarder_ = std::make_unique<CertificateForwarder>(*cluster->credentials_, *cluster->transport_);
  cluster->client_ = std::make_unique<KubeClient>(*cluster->transport_, std::move(config.server), *cluster->forwarder_,
                                                  std::move(options.client));
  return cluster;
}

}  // namespace windlass::kube
