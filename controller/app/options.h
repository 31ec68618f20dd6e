// The flags of windlass-controller.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/base/result.h"

namespace windlass::controller {

struct AppOptions {
  std::string store = "kubernetes";    // "kubernetes" or "dir:PATH"
  std::string runtime = "kubernetes";  // "kubernetes", "local" or "attached"
  std::string listen = "127.0.0.1:9401";
  double tick_s = 1;
  double load_status_period_s = 30;
  int max_queued = 1024;
  std::string log_level = "info";

  // Reads demand from a Prometheus server instead of the gateways' own pages.
  std::string prometheus_url;       // empty: the gateways' own pages
  std::string prometheus_selector;  // label matchers of this installation's gateways
  std::string prometheus_token_file;
  double prometheus_period_s = 5;

  // docs/security.md; empty: none
  std::string tls_cert, tls_key;
  std::string token_file;
  bool open_metrics = false;  // /metrics needs no token
  std::string gateway_ca;
  std::string gateway_server_name = "windlass-gateway";

  // for Kubernetes
  std::string kubeconfig;  // empty: KUBECONFIG, then the in-cluster configuration, then ~/.kube/config
  std::string context;
  std::string name_space;                              // of the lease; empty: from the cluster configuration
  std::string identity;                                // empty: the host name; a random part is always added
  std::string instance = "windlass";                   // this installation's name, for its Lease, its pods and its services
  std::vector<std::string> watch_namespaces;           // namespaces whose ModelServices are served; empty: all
  std::vector<std::string> plain_names = {"default"};  // namespaces whose served names have no namespace prefix; "*": all
  bool leader_elect = true;
  std::string worker_image;
  bool any_pod_template = false;
  std::string fetch_image;
  std::vector<std::string> worker_pull_secrets;
  std::string worker_user = "65532";  // "none": the image's, or the cluster's choice

  // for --runtime local and attached
  std::string worker_binary;  // empty: windlass-worker next to this program
  int local_gpus = 0;         // 0: one per core
  std::string servers;        // for --runtime attached: a JSON file
  bool keep_workers = false;  // workers survive a crash of this program, and the next one adopts them
  std::string model_root;     // base of relative file:// paths; empty: the working directory

  [[nodiscard]] bool store_is_directory() const { return store.rfind("dir:", 0) == 0; }
  [[nodiscard]] std::string store_directory() const { return store.substr(4); }
};

struct ParsedFlags {
  AppOptions options;
  // set if the program must end now: --help, --version, or an invalid flag (reported on stderr)
  std::optional<int> exit_status;
};

[[nodiscard]] ParsedFlags parse_flags(int argc, const char* const* argv);

}  // namespace windlass::controller
