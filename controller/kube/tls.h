// TlsOptions: how one transport proves the peer and itself. PEM texts in memory, never paths, so that a rotated file is read in
// one place (kube_config) and no library opens files behind our back. Plain data; the private key never reaches a log.
#pragma once

#include <string>

namespace windlass::kube {

struct ClientCertificate {
  std::string certificate_pem = {};  // the leaf first, then its chain
  std::string private_key_pem = {};

  bool operator==(const ClientCertificate&) const = default;
};

struct TlsOptions {
  std::string ca_pem = {};  // who may sign the peer's certificate; empty: the system's store
  ClientCertificate client = {};
  std::string server_name = {};       // the name expected in the peer's certificate; empty: the URL's host
  bool insecure_skip_verify = false;  // only where a person wrote so in a kubeconfig

  bool operator==(const TlsOptions&) const = default;
};

}  // namespace windlass::kube
