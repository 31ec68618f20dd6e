// SimWorld: a whole Windlass in one thread and virtual time: real controllers (store, runtime, lease, reconcile, planner) on a
// fake API server; a kubelet, workers and a gateway in miniature around them, with the real dispatch policy and the real
// metrics text; seeded faults. After every tick it checks what must never happen; what it finds stands in violations().
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/app/lease_leadership.h"
#include "controller/kube/credentials.h"
#include "controller/reconcile/controller.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "controller/store/kubernetes_store.h"
#include "metrics/bundles.h"
#include "planner/base/rng.h"
#include "planner/dispatch/jffc.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::simulation {

struct WorldOptions {
  std::uint64_t seed = 1;
  int controllers = 2;
  int nodes = 2;
  int gpus_per_node = 4;
  fakes::FaultRates faults = {};
  double crash_per_s = 0;  // rate at which a controller crashes and comes back with nothing remembered
  double pause_per_s = 0;  // rate at which a controller stands still for 5 to 40 s (a stopped process) and goes on
  double load_min_s = 2;   // a worker's time from start to ready
  double load_max_s = 8;
};

// One controller process. A crash destroys it whole.
struct SimController {
  std::string name;
  std::string identity;
  double clock_skew_s = 0;  // of its monotonic clock's origin
  std::unique_ptr<fakes::FakeConnection> wire;
  std::unique_ptr<fakes::FakeConnection> scraper;
  std::unique_ptr<kube::CredentialSource> credentials;
  std::unique_ptr<kube::KubeClient> client;
  std::unique_ptr<controller::LeaseLeadership> leadership;
  std::unique_ptr<controller::KubernetesStore> store;
  std::unique_ptr<controller::KubernetesRuntime> runtime;
  std::unique_ptr<metrics::Registry> registry;
  std::unique_ptr<metrics::ControllerMetrics> metrics;
  std::unique_ptr<controller::RoutingPublisher> publisher;
  std::unique_ptr<controller::Controller> core;
  double next_step_s = 0;
  double paused_until_s = 0;
};

class SimWorld {
 public:
  explicit SimWorld(WorldOptions options);
  ~SimWorld();

  static constexpr double kTickS = 0.25;

  // Lets `seconds` pass with `rate_per_s` requests arriving.
  void run(double seconds, double rate_per_s);

  void stop_faults();
  void partition_gateway(bool on) { gateway_partitioned_ = on; }  // its /metrics cannot be read

  [[nodiscard]] fakes::FakeApiServer& api() { return api_; }
  [[nodiscard]] double now() const { return now_; }
  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }

  // Pods of the service that neither drain nor end.
  [[nodiscard]] int active_workers() const;
  [[nodiscard]] int ready_workers() const;
  [[nodiscard]] nlohmann::json service_status() const;
  [[nodiscard]] const planner::Plan* plan() const;  // of the leader; nullptr: nobody leads
  // Requests per second that one worker can serve, by the leader's plan.
  [[nodiscard]] std::optional<double> worker_rate() const;
  [[nodiscard]] int changes_of_active() const { return changes_of_active_; }  // how often active_workers() changed

  struct Tally {
    long arrived = 0, finished = 0, lost = 0, rejected_by_worker = 0;
  };
  [[nodiscard]] const Tally& tally() const { return tally_; }
  [[nodiscard]] std::size_t queued() const { return queue_.size(); }

 private:
  struct Process {  // a worker's container
    std::string ip;
    double ready_at_s = 0;
    int running = 0;
    double kill_at_s = 0;
    bool stopping = false;
  };
  struct Request {
    double finish_s = 0;
    std::string pod_uid;
    std::string chain;
  };

  void build(SimController& one);
  void step_controllers();
  void step_kubelet();
  void step_gateway(double rate_per_s);
  void dispatch();
  void check();
  void violate(const std::string& what);
  Result<kube::HttpResponse> answer_metrics(const std::string& url);
  [[nodiscard]] SimController* leader();

  WorldOptions options_;
  fakes::FakeApiServer api_;
  Rng chaos_;
  Rng arrivals_;
  Rng service_;
  double now_ = 0;
  std::vector<SimController> controllers_;
  bool faults_on_ = true;

  std::map<std::string, Process> processes_;  // by pod UID
  int next_ip_ = 1;

  bool gateway_partitioned_ = false;
  dispatch::RoutingTable table_;
  dispatch::Jffc policy_;
  std::unique_ptr<metrics::Registry> gateway_registry_;
  std::unique_ptr<metrics::GatewayMetrics> gateway_metrics_;
  std::deque<double> queue_;              // arrival times
  std::map<std::string, int> in_flight_;  // by chain
  std::vector<Request> running_;
  double next_arrival_s_ = -1;

  Tally tally_;
  int last_active_ = -1;
  int changes_of_active_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace windlass::simulation
