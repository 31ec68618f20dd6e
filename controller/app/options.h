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

  // Demand from a Prometheus server in place of the gateways' own pages.
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

  // kubernetes
  std::string kubeconfig;  // empty: KUBECONFIG, then inside a cluster its own, then ~/.kube/config
  std::string context;
  std::string name_space;                     // of the lease; empty: the cluster configuration's
  std::string identity;                       // empty: the host's name; a random part is always added
  std::string instance = "windlass";          // this installation's name: of its Lease, its pods and the services it serves
  std::vector<std::string> watch_namespaces;  // whose ModelServices are served; empty: all
  std::vector<std::string> plain_names = {"default"};  // namespaces whose served names stand without them; "*": all
  bool leader_elect = true;
  std::string worker_image;
  bool any_pod_template = false;
  std::string fetch_image;

  // local
  std::string worker_binary;  // empty: windlass-worker beside this program
  int local_gpus = 0;         // 0: one for each core
  std::string servers;        // of --runtime attached: a JSON file
  bool keep_workers = false;  // they outlive a crash of this program; whoever starts it again adopts them
  std::string model_root;     // where relative file:// paths begin; empty: the working directory

  [[nodiscard]] bool store_is_directory() const { return store.rfind("dir:", 0) == 0; }
  [[nodiscard]] std::string store_directory() const { return store.substr(4); }
};

struct ParsedFlags {
  AppOptions options;
  std::optional<int> exit_status;  // the program ends at once: --help, --version, or a flag that is wrong (told on stderr)
};

[[nodiscard]] ParsedFlags parse_flags(int argc, const char* const* argv);

}  // namespace windlass::controller
