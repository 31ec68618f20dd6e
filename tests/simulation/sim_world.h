// SimWorld: the whole of Windlass in one thread and virtual time. Real controllers (store, runtime, lease, loop, policy), real
// gateway routers and real routing tables; around them a fake API server, nodes, workers and the faults of a seed. Invariants
// are checked throughout; journal() holds the violations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/base/rng.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/simulation/chaos.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_cluster.h"
#include "tests/simulation/sim_controller.h"
#include "tests/simulation/sim_gateway.h"
#include "tests/simulation/timeline.h"

namespace windlass::simulation {

class SimWorld {
 public:
  explicit SimWorld(Scenario scenario);
  ~SimWorld();

  std::function<void(const planner::Plan&)> on_plan;  // called with each plan that a controller makes

  void run(double seconds) { timeline_.run_until(timeline_.now_s() + seconds); }
  void stop_faults();
  // From now on this load holds instead of the scenario's own steps.
  void set_load(const std::string& service, double rate_per_s);

  [[nodiscard]] double now_s() const { return timeline_.now_s(); }
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] fakes::FakeApiServer& api() { return api_; }
  [[nodiscard]] Journal& journal() { return journal_; }
  [[nodiscard]] const Invariants& invariants() const { return invariants_; }
  [[nodiscard]] SimCluster& cluster() { return cluster_; }
  [[nodiscard]] std::vector<std::unique_ptr<SimGateway>>& gateways() { return gateways_; }
  [[nodiscard]] const std::vector<std::unique_ptr<SimController>>& controllers() const { return controllers_; }
  [[nodiscard]] const SimController* leader() const;

  // ---- of one service, as stored in the API server
  [[nodiscard]] int active_workers(const std::string& service) const;  // neither draining nor ending
  [[nodiscard]] int ready_workers(const std::string& service) const;
  [[nodiscard]] nlohmann::json status(const std::string& service) const;
  [[nodiscard]] const planner::ServicePlan* plan(const std::string& service) const;  // the leader's; nullptr: none
  [[nodiscard]] Tally tally(const std::string& model) const;
  // Requests per second that one worker can serve, by the leader's plan; 0: no plan.
  [[nodiscard]] double worker_rate(const std::string& service) const;

 private:
  void stepped(const SimController& controller);
  void arrive(std::size_t service);
  void step_controller(std::size_t index);
  void poll_tables();
  void collect_garbage();

  Scenario scenario_;
  Timeline timeline_;
  Journal journal_;
  fakes::FakeApiServer api_;
  SimCluster cluster_;
  Invariants invariants_;
  std::vector<std::unique_ptr<SimController>> controllers_;
  std::vector<SimController*> controller_list_;
  std::vector<std::unique_ptr<SimGateway>> gateways_;
  std::vector<Rng> arrivals_;  // by service
  Rng clients_;
  std::unique_ptr<Chaos> chaos_;
  std::uint64_t garbage_version_ = 0;
  std::map<std::string, std::uint64_t> plans_seen_;  // by the controller's identity
};

}  // namespace windlass::simulation
