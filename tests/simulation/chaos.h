// Chaos: causes the faults of a seed's FaultPlan and plays the people who change objects meanwhile. Each kind of fault draws
// from its own random stream, so that switching one off leaves the others unchanged.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_cluster.h"
#include "tests/simulation/sim_controller.h"
#include "tests/simulation/sim_gateway.h"
#include "tests/simulation/timeline.h"

namespace windlass::simulation {

class Chaos {
 public:
  static constexpr double kStepS = 1;

  Chaos(Timeline& timeline, fakes::FakeApiServer& api, Journal& journal, const Scenario& scenario, SimCluster& cluster,
        Invariants& invariants, std::vector<SimController*>& controllers, std::vector<std::unique_ptr<SimGateway>>& gateways);

  void begin();
  // Stops all faults and reverts the edits that would keep a service from being served.
  void end();

 private:
  using Fault = std::function<void(Rng&)>;
  void add(const std::string& name, double rate_per_s, Fault what);
  void step();
  void add_process_faults();
  void add_gateway_faults();
  void add_cluster_faults();
  void add_people();

  // ---- people
  void edit(const std::string& service, const std::string& what, const std::function<void(nlohmann::json& spec)>& change);
  void edit_one(Rng& random);
  void recreate(Rng& random);
  void break_object(Rng& random);
  void kill_pod(Rng& random);
  [[nodiscard]] const ServiceScenario& pick(Rng& random) const;
  void after(double seconds, std::function<void()> what);  // no longer runs once faults have stopped

  Timeline& timeline_;
  fakes::FakeApiServer& api_;
  Journal& journal_;
  const Scenario& scenario_;
  SimCluster& cluster_;
  Invariants& invariants_;
  std::vector<SimController*>& controllers_;
  std::vector<std::unique_ptr<SimGateway>>& gateways_;
  struct Entry {
    std::string name;
    double rate_per_s = 0;
    Rng random;
    Fault what;
  };
  std::vector<Entry> faults_;
  bool on_ = false;
  bool quota_ = false;
  std::map<std::string, nlohmann::json> broken_;  // service -> its original spec
};

}  // namespace windlass::simulation
