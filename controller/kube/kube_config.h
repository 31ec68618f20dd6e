// Finds the API server and our credentials, from kubeconfig files or inside a pod.
//
// Reads files, never the environment: the caller passes in KUBECONFIG, HOME and KUBERNETES_SERVICE_*. Errors have the file, the
// field's path, the rule and the value, but never a secret. Single-threaded.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "controller/kube/credentials.h"
#include "controller/kube/tls.h"
#include "planner/base/result.h"

namespace windlass::kube {

struct ClusterConfig {
  std::string server;   // scheme://host[:port][/path], without a trailing slash
  std::string context;  // the kubeconfig context's name; empty inside a cluster
  std::string name_space = "default";
  std::string proxy_url;
  TlsOptions tls;  // has the client certificate from files or data; `credentials` has one from an exec plugin
  std::unique_ptr<CredentialSource> credentials;  // never null
};

struct KubeconfigOptions {
  std::vector<std::filesystem::path> files = {};  // merged: the first file that has a name, a value or a current-context wins
  std::string context = {};                       // overrides current-context
};

// The files listed in KUBECONFIG's value (colon-separated); if it is empty, HOME's .kube/config.
[[nodiscard]] std::vector<std::filesystem::path> kubeconfig_paths(const std::string& kubeconfig_env, const std::string& home);

// Missing files are skipped if at least one exists, as in kubectl.
[[nodiscard]] Result<ClusterConfig> load_kubeconfig(const KubeconfigOptions& options);

struct InClusterOptions {
  std::filesystem::path root = "/var/run/secrets/kubernetes.io/serviceaccount";  // token, ca.crt, namespace
  std::string host = {};                                                         // KUBERNETES_SERVICE_HOST
  std::string port = {};                                                         // KUBERNETES_SERVICE_PORT
};

[[nodiscard]] Result<ClusterConfig> load_in_cluster(const InClusterOptions& options);

}  // namespace windlass::kube
