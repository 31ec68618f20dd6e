// ControlPlane: a real Kubernetes control plane for tests, on free ports of 127.0.0.1 and in its own folder.
//
// etcd, kube-apiserver (TLS, RBAC, audit log), kube-controller-manager (garbage collection, namespaces, service accounts,
// volumes, deployments, node life cycle) and kube-scheduler run as child processes. They end with the object, or with the test
// if it is killed. Only the thread that created the object may use it, except for admin(), get() and the paths, which any
// thread may use.
//
//   auto plane = ControlPlane::start();
//   plane.value()->kubectl({"apply", "-f", "-"}, yaml);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"
#include "tests/cluster/harness/http.h"
#include "tests/cluster/harness/process.h"

namespace windlass::testing {

// The folder with etcd, kube-apiserver, ... or an error that says how to build them.
[[nodiscard]] Result<std::string> find_cluster_tools();

// One request, as recorded in the API server's audit log.
struct AuditEvent {
  std::string verb;         // create, update, patch, delete, get, list, watch
  std::string resource;     // "pods"
  std::string subresource;  // "status"
  std::string name_space;
  std::string name;
  std::string user;
  std::string credential;  // "JTI=..." of the ServiceAccount token; may be empty
  std::string received;    // RFC 3339 with microseconds; sorts as a string
  int code = 0;

  [[nodiscard]] bool mutating() const {
    return verb == "create" || verb == "update" || verb == "patch" || verb == "delete" || verb == "deletecollection";
  }
};

class ControlPlane {
 public:
  // Starts everything; returns once the API server is ready and the default ServiceAccount exists.
  [[nodiscard]] static Result<std::unique_ptr<ControlPlane>> start();
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  [[nodiscard]] const std::string& url() const { return url_; }
  [[nodiscard]] const std::string& folder() const { return folder_->path(); }
  [[nodiscard]] const std::string& kubeconfig() const { return kubeconfig_; }  // the administrator's (client certificate)
  [[nodiscard]] Tls admin() const;

  // Runs kubectl as the administrator.
  CommandResult kubectl(const std::vector<std::string>& arguments, const std::string& input = "") const;
  CommandResult helm(const std::vector<std::string>& arguments) const;

  // One request to the API server as the administrator; `path` starts with a slash.
  [[nodiscard]] HttpAnswer get(const std::string& path) const;
  [[nodiscard]] HttpAnswer send(const std::string& method, const std::string& path, const nlohmann::json& body,
                                const std::string& content_type = "application/json") const;
  // The items of a list; empty if the request failed.
  [[nodiscard]] std::vector<nlohmann::json> list(const std::string& path) const;

  // Creates a token of a ServiceAccount through the TokenRequest API, and a kubeconfig (a file in folder()) that contains it.
  [[nodiscard]] Result<std::string> token(const std::string& name_space, const std::string& account) const;
  [[nodiscard]] std::string write_kubeconfig(const std::string& name, const std::string& bearer_token) const;

  // Ends the API server with `signal_number` and waits until it is gone; starts it again on the same port and waits until it is
  // ready.
  void stop_api_server(int signal_number);
  [[nodiscard]] Result<void> start_api_server();
  [[nodiscard]] bool ready() const;
  // The same for etcd, which keeps its data.
  void stop_etcd(int signal_number);
  [[nodiscard]] Result<void> start_etcd();

  // The audit log so far, oldest first.
  [[nodiscard]] std::vector<AuditEvent> audit_log() const;

  // The last lines of every component's log, for failure messages.
  [[nodiscard]] std::string tails(int lines = 15) const;

 private:
  ControlPlane(std::string tools, std::unique_ptr<TempDir> folder);
  [[nodiscard]] Result<void> start_managers();
  [[nodiscard]] Result<std::unique_ptr<Process>> launch(const std::string& program, std::vector<std::string> arguments) const;

  std::string tools_;
  std::unique_ptr<TempDir> folder_;
  int etcd_port_ = 0;
  int etcd_peer_port_ = 0;
  int port_ = 0;
  std::string url_;
  std::string kubeconfig_;
  std::unique_ptr<Process> etcd_;
  std::unique_ptr<Process> api_server_;
  std::unique_ptr<Process> controller_manager_;
  std::unique_ptr<Process> scheduler_;
};

// "JTI=..." as the audit log names a ServiceAccount token.
[[nodiscard]] std::string credential_of(const std::string& token);

}  // namespace windlass::testing
