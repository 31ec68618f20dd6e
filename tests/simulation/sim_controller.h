// SimController: one controller process of a simulated world. The real store, runtime, lease, publisher and loop share one
// client's connection to the fake API server. It may die between two steps or two writes, and may pause anywhere, even during a
// write, while the rest of the world goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "controller/kube/credentials.h"
#include "controller/reconcile/controller.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "controller/store/kubernetes_store.h"
#include "metrics/bundles.h"
#include "planner/base/rng.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/lease_leadership.h"
#include "tests/simulation/sim_gateway.h"
#include "tests/simulation/timeline.h"

namespace windlass::simulation {

class SimController {
 public:
  static constexpr const char* kLeaseNamespace = "windlass-system";

  SimController(Timeline& timeline, fakes::FakeApiServer& api, Journal& journal, std::string name, std::uint64_t seed,
                const FaultPlan& faults);
  ~SimController();

  // How it reads /metrics of gateways and workers, by address.
  std::function<Result<kube::HttpResponse>(const kube::HttpRequest&)> scrape;

  void start();  // starts a new process without memory; ends the running one
  // Runs one step if one is due. Dies where Chaos says so, and restarts immediately.
  void run();

  // ---- faults
  void set_faults(bool on);
  void pause_until(double until_s) { paused_until_s_ = until_s; }
  void jump_wall(double by_s) { wall_offset_s_ += by_s; }
  void partition(bool on);
  void steady();  // switches all faults off

  // ---- state
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& identity() const { return identity_; }
  [[nodiscard]] double monotonic_s() const { return timeline_.now_s() + skew_s_; }
  [[nodiscard]] double wall_s() const { return api_.wall_now() + wall_offset_s_; }
  [[nodiscard]] bool leading() const { return leadership_->leading(monotonic_s()); }
  [[nodiscard]] bool busy() const { return busy_; }  // in the middle of a step, paused
  [[nodiscard]] bool answers() const { return !busy_ && timeline_.now_s() >= paused_until_s_; }
  [[nodiscard]] TableSource table_source() const;
  [[nodiscard]] std::vector<controller::GatewayPeer> gateways() const { return publisher_->gateways(monotonic_s()); }
  // Whether the controller led when it sent the write that is being applied, even if it no longer leads.
  [[nodiscard]] bool sent_while_leading() const { return sent_while_leading_; }
  [[nodiscard]] double sent_s() const { return sent_s_; }  // when it was sent
  [[nodiscard]] const controller::Controller& core() const { return *core_; }
  [[nodiscard]] const controller::KubernetesStore& store() const { return *store_; }
  [[nodiscard]] const controller::KubernetesRuntime& runtime() const { return *runtime_; }
  [[nodiscard]] double started_s() const { return started_s_; }
  [[nodiscard]] double step_began_s() const { return step_began_s_; }  // the last or current step
  [[nodiscard]] double due_s() const;                                  // when run() has something to do next

  std::function<void(const std::string& check, const std::string& what)> on_violation;
  std::function<void(SimController&)> after_step;

 private:
  struct Death {};  // thrown through a step: the process ends there

  void before_request(const kube::HttpRequest& request);
  void answer_offers();

  Timeline& timeline_;
  fakes::FakeApiServer& api_;
  Journal& journal_;
  std::string name_;
  const FaultPlan& faults_;
  Rng random_;    // of the process itself: identities, jitter
  Rng troubles_;  // of the faults
  double skew_s_;
  double wall_offset_s_ = 0;
  bool faults_on_ = false;

  std::string identity_;
  std::unique_ptr<fakes::FakeConnection> wire_;
  std::unique_ptr<fakes::FakeConnection> scraper_;
  std::unique_ptr<kube::CredentialSource> credentials_;
  std::unique_ptr<kube::KubeClient> client_;
  std::unique_ptr<controller::LeaseLeadership> leadership_;
  std::unique_ptr<controller::KubernetesStore> store_;
  std::unique_ptr<controller::KubernetesRuntime> runtime_;
  std::unique_ptr<metrics::Registry> registry_;
  std::unique_ptr<metrics::ControllerMetrics> metrics_;
  std::unique_ptr<controller::RoutingPublisher> publisher_;
  std::shared_ptr<controller::OfferQuestions> offers_;  // answers in progress outlive the process
  std::unique_ptr<controller::Controller> core_;

  double started_s_ = 0;
  double step_began_s_ = 0;
  double next_step_s_ = 0;
  double paused_until_s_ = 0;
  bool busy_ = false;
  bool dies_before_next_write_ = false;
  bool sent_while_leading_ = false;
  double sent_s_ = 0;
  bool partitioned_ = false;
};

}  // namespace windlass::simulation
