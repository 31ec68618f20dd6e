// Where the API server is and who we are to it: from kubeconfig files or from inside a pod.
//
// Reads files, never the environment: the app's edge passes KUBECONFIG, HOME and KUBERNETES_SERVICE_* in. Errors name the file,
// the path of the field, what was found and what is allowed; contents of secrets never stand in them. Single-threaded.
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
  std::string server;   // scheme://host[:port][/path], without a closing slash
  std::string context;  // the kubeconfig context's name; empty in a cluster
  std::string name_space = "default";
  std::string proxy_url;
  TlsOptions tls;  // a client certificate given by files or data stands here; one by an exec plugin in `credentials`
  std::unique_ptr<CredentialSource> credentials;  // never null
};

struct KubeconfigOptions {
  std::vector<std::filesystem::path> files = {};  // joined: the first file that has a name, a value or a current-context wins
  std::string context = {};                       // overrides current-context
};

// The files that KUBECONFIG's value (colon-separated) names; when it is empty, HOME's .kube/config.
[[nodiscard]] std::vector<std::filesystem::path> kubeconfig_paths(const std::string& kubeconfig_env, const std::string& home);

// Files that do not exist are passed over as long as one does (kubectl does so too).
[[nodiscard]] Result<ClusterConfig> load_kubeconfig(const KubeconfigOptions& options);

struct InClusterOptions {
  std::filesystem::path root = "/var/run/secrets/kubernetes.io/serviceaccount";  // token, ca.crt, namespace
  std::string host = {};                                                         // KUBERNETES_SERVICE_HOST
  std::string port = {};                                                         // KUBERNETES_SERVICE_PORT
};

[[nodiscard]] Result<ClusterConfig> load_in_cluster(const InClusterOptions& options);

}  // namespace windlass::kube
