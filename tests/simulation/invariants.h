// Invariants: what must hold in a simulated world whatever goes wrong. Each check has a name; docs/simulation-tests.md says
// what each is for. The checks look at what the fake API server holds, not at what a controller believes. The exceptions are
// rules about belief: a controller that has not seen an edit yet is judged by what it could know.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/fakes/fake_api_server.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_cluster.h"
#include "tests/simulation/sim_controller.h"
#include "tests/simulation/sim_gateway.h"
#include "tests/simulation/timeline.h"

namespace windlass::simulation {

// Outcomes that clients of one model saw. Every request ends in exactly one of them.
struct Tally {
  long arrived = 0;
  long open = 0;
  std::map<int, long> ended;  // by HTTP status; 0: its gateway died

  [[nodiscard]] long with(int code) const {
    const auto found = ended.find(code);
    return found == ended.end() ? 0 : found->second;
  }
};

class Invariants {
 public:
  Invariants(const Timeline& timeline, fakes::FakeApiServer& api, Journal& journal);

  // ---- events reported by the world

  void wrote(const fakes::WriteAttempt& write, const std::vector<SimController*>& controllers);
  void refused_create(const controller::Worker& worker);  // by a quota
  void stepped(const SimController& controller, const std::vector<SimController*>& controllers);
  void killed_by_deletion(const nlohmann::json& pod, std::size_t calls);
  void request_began(const std::string& model);
  void request_ended(const std::string& model, int code, double arrived_s);
  void page_read(const std::string& controller, const std::string& gateway);
  // A person created, changed or deleted a ModelService.
  void spec_changed(const nlohmann::json& service);
  void service_deleted(const std::string& uid);
  void person_deleted_pod(const std::string& uid, double grace_s);
  void gateways_hold(const std::vector<const dispatch::RoutingTable*>& tables);

  [[nodiscard]] const std::map<std::string, Tally>& tallies() const { return tallies_; }
  // Writes by controllers, without leases, events and statuses, whose figures keep moving for minutes.
  [[nodiscard]] long writes_besides_leases() const { return writes_; }
  [[nodiscard]] long status_writes() const { return status_writes_; }
  // The last such write: who and what.
  [[nodiscard]] const std::string& last_write() const { return last_write_; }
  [[nodiscard]] int changes_of_desired(const std::string& uid) const;

 private:
  struct Limits {  // of one generation of a spec
    std::int64_t generation = 0;
    std::string mode = "Apply";
    std::optional<int> max_workers;
    std::optional<double> max_cost;
    std::map<std::string, int> max_gpus;  // by class
    double drain_timeout_s = 1800;
  };
  struct ServiceTrack {
    std::string name;
    std::vector<Limits> limits;  // by generation
    std::optional<double> deleted_s;
    std::int64_t observed_generation = 0;
  };

  struct LastPlan {
    int desired = 0;
    int wanted = 0;                       // by the policy, without workers of a former configuration
    std::map<std::string, int> by_class;  // desired, by accelerator
    std::set<std::string> draining;       // names of its draining workers
    std::int64_t generation = 0;
    bool denied = false;
    double at_s = 0;
  };

  void violate(const std::string& check, const std::string& what) { journal_.violate(timeline_.now_s(), check, what); }
  void check_fence(const fakes::WriteAttempt& write, const SimController& writer);
  void check_create(const fakes::WriteAttempt& write, const SimController& writer);
  void check_end(const fakes::WriteAttempt& write, const SimController& writer);
  void check_status(const fakes::WriteAttempt& write);
  void check_plan(const SimController& controller);
  std::map<std::string, int> check_gpu_budgets(const planner::Plan& plan, const planner::Snapshot& snapshot);
  void check_clock(const planner::ServicePlan& one, planner::Demand demand, double now_s);
  void check_change(const SimController& controller, const planner::ServicePlan& one, const planner::Service& seen, bool denied,
                    const std::map<std::string, int>& room);
  [[nodiscard]] static bool place_lost(const LastPlan& before, const LastPlan& now, const planner::Service& seen,
                                       const std::map<std::string, int>& room);
  void check_pages(const SimController& controller, const planner::ServicePlan& one);
  void check_demand(const planner::ServicePlan& one, const planner::Service& seen);
  // The generations that a controller may still act on if `known` is the newest it has seen.
  [[nodiscard]] std::vector<const Limits*> possible(const std::string& uid, const SimController& writer) const;

  const Timeline& timeline_;
  fakes::FakeApiServer& api_;
  Journal& journal_;
  std::map<std::string, ServiceTrack> services_;                   // by UID
  std::map<std::string, Tally> tallies_;                           // by model
  std::map<std::string, std::vector<double>> arrivals_;            // by model; recent times
  std::map<std::string, double> pods_ended_by_people_;             // UID -> when the grace period ends
  std::map<std::string, double> marked_;                           // pod UID -> true Unix time of its drain mark
  std::map<std::pair<std::string, std::string>, double> pages_;    // (controller, gateway) -> when last read
  std::map<std::pair<std::string, std::string>, double> peers_;    // (identity, gateway) -> since when a plan may know it
  std::map<std::pair<std::string, std::string>, LastPlan> plans_;  // (identity, service UID)
  std::map<std::string, std::uint64_t> plans_seen_;                // by identity
  std::map<std::string, int> changes_;                             // of the desired count, by service UID
  std::map<std::string, std::vector<double>> refused_;             // creates under this lease, by service UID
  std::map<std::string, std::pair<std::string, double>> made_;     // pods: who created them and when
  long writes_ = 0;
  long status_writes_ = 0;
  std::string last_write_;
};

}  // namespace windlass::simulation
