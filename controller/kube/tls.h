// TlsOptions: how a transport verifies its peer and authenticates itself. PEM texts in memory, never paths: a rotated file is
// then read in one place (kube_config), and no library opens files on its own. Plain data; the private key is never logged.
#pragma once

#include <string>

namespace windlass::kube {

struct ClientCertificate {
  std::string certificate_pem = {};  // the leaf first, then its chain
  std::string private_key_pem = {};

  bool operator==(const ClientCertificate&) const = default;
};

struct TlsOptions {
  std::string ca_pem = {};  // CAs that may sign the peer's certificate; empty: the system's store
  ClientCertificate client = {};
  std::string server_name = {};       // name expected in the peer's certificate; empty: the URL's host
  bool insecure_skip_verify = false;  // only if the kubeconfig says so

  bool operator==(const TlsOptions&) const = default;
};

}  // namespace windlass::kube
