// Kubelet: a node for tests whose containers are local processes.
//
// It registers its Node with allocatable accelerators, renews the node's Lease, watches the pods bound to it (with our own
// KubeClient and Reflector), runs them (see pod.h) on addresses of 127.0.0.0/8, probes them, reports their status and confirms
// their deletion. Everything runs on the thread that calls run(). While the API server is away it continues with what it knows.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "controller/kube/cluster.h"
#include "controller/kube/reflector.h"
#include "planner/base/result.h"
#include "tests/cluster/kubelet/pod.h"

namespace windlass::testing {

struct KubeletOptions {
  std::string kubeconfig;
  std::string node = "node-1";
  std::string folder;                              // pods' logs and volumes
  std::map<std::string, std::string> allocatable;  // extended resources: "windlass.dev/cpu" -> "8"
  std::map<std::string, std::string> labels;       // of the node
  std::map<std::string, std::string> program_by_image;
  bool cordoned = false;  // unschedulable: only pods with a nodeName come here
  int network = 42;       // pods get 127.<network>.x.y
  double crash_backoff_s = 1;
};

class Kubelet {
 public:
  explicit Kubelet(KubeletOptions options);
  ~Kubelet();

  // Works until stop() is called; the pods' processes end with the object. Fails if the kubeconfig cannot be used.
  [[nodiscard]] Result<void> run();
  // May be called from any thread, including a dedicated signal handling thread.
  void stop();

 private:
  struct Reported {
    nlohmann::json status;  // as last accepted by the API server
    double next_try_s = 0;
    bool confirmed = false;  // the API server has accepted our confirmation of the deletion
  };

  void step(double now_s, const std::string& wall);
  void register_node(double now_s, const std::string& wall);
  void renew_lease(double now_s);
  void follow_pods();
  void ask_probes(double now_s);
  void report(Pod& pod, double now_s, const std::string& wall);
  std::string next_ip();
  Result<nlohmann::json> fetch(const std::string& name_space, const std::string& kind, const std::string& name);

  KubeletOptions options_;
  std::unique_ptr<kube::Cluster> cluster_;
  std::unique_ptr<kube::CurlTransport> probe_transport_;
  std::unique_ptr<kube::Reflector> reflector_;
  std::map<std::string, std::unique_ptr<Pod>> pods_;  // by uid
  std::map<std::string, Reported> reported_;          // by uid
  bool registered_ = false;
  double next_registration_s_ = 0;
  double next_lease_s_ = 0;
  std::uint64_t seen_generation_ = 0;
  int ips_given_ = 0;

  std::mutex mutex_;
  std::condition_variable woken_;
  bool activity_ = false;  // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
};

}  // namespace windlass::testing
