// SimGateway: one gateway process of a simulated world: the real router and metrics, with sockets simulated in virtual time. It
// long-polls the routing table from the real publishers, sends requests to the worker processes and reports their outcome to
// the router, as gateway/dispatcher.cc does over the network. A crash loses all its state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "controller/reconcile/routing_publisher.h"
#include "gateway/router.h"
#include "metrics/bundles.h"
#include "planner/base/rng.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/sim_cluster.h"
#include "tests/simulation/timeline.h"

namespace windlass::simulation {

// A controller as seen by a gateway; null: it does not answer.
struct TableSource {
  controller::RoutingPublisher* publisher = nullptr;
  double monotonic_s = 0;  // its own clock
};

enum class PageFault { kNone, kUnreadable, kNotANumber, kSeriesMissing };

class SimGateway {
 public:
  static constexpr double kPollS = 0.25;

  SimGateway(Timeline& timeline, SimCluster& cluster, Journal& journal, std::string name, std::uint64_t seed);
  ~SimGateway();

  void start();
  // Loses all state; clients see a broken connection. Nothing happens until start().
  void crash();
  [[nodiscard]] bool up() const { return router_ != nullptr; }

  // A client's request. `tokens`: length of the answer; `length`: the same, relative to the mean.
  void request(const std::string& model, int tokens, double length);

  // Asks the controllers for a table; call it every kPollS.
  void poll(std::size_t controllers, const std::function<TableSource(std::size_t)>& reach);
  [[nodiscard]] Result<kube::HttpResponse> metrics_page();

  bool partitioned = false;  // cut off from the controllers, both ways
  PageFault page_fault = PageFault::kNone;
  void reset_counters();  // as if the registry restarted while the process runs
  double table_late_s = 0;
  double impatient = 0;  // chance that a client leaves early

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string admin_address() const { return name_ + ".gateway:9402"; }
  [[nodiscard]] const dispatch::RoutingTable* table() const;
  [[nodiscard]] std::size_t open_requests() const { return open_.size(); }
  [[nodiscard]] std::string describe_open() const;  // the oldest open requests, for a person
  [[nodiscard]] const std::map<std::string, long>& arrivals() const { return arrivals_; }  // by model, since the start

  // A request is over. `code`: the HTTP status that the client saw (0: the gateway died).
  std::function<void(const std::string& model, int code, double arrived_s)> on_finished;
  std::function<void(const std::string& what)> on_violation;

 private:
  struct ModelMetrics;
  struct Open {
    std::string model;
    double arrived_s = 0;
    int tokens = 1;
    double length = 1;
    std::optional<CallId> call;  // at the worker that runs its current step
    std::optional<CallId> kept;  // at the worker that computed its prompt, until the next worker has fetched the result
  };

  void perform(const gateway::Actions& actions);
  void send(const gateway::Dispatch& to);
  void call_broke(gateway::RequestId id, CallId call);
  void prompt_computed(gateway::RequestId id, CallId call);
  void first_token(gateway::RequestId id, CallId call, double rest_s);
  void complete(gateway::RequestId id, CallId call);
  void obey(dispatch::RoutingTable table);
  void finished(const gateway::Finished& finished);
  void wake();
  void leave(std::optional<CallId>& call);
  [[nodiscard]] double slot_time_s(const std::string& model, const std::string& chain) const;
  ModelMetrics& of(const std::string& model);
  void refresh_gauges();

  Timeline& timeline_;
  SimCluster& cluster_;
  Journal& journal_;
  std::string name_;
  Rng random_;
  std::uint64_t lives_ = 0;  // events of an earlier life are ignored

  std::unique_ptr<gateway::Router> router_;
  std::unique_ptr<metrics::Registry> registry_;
  std::unique_ptr<metrics::GatewayMetrics> metrics_;
  std::map<std::string, std::unique_ptr<ModelMetrics>> models_;
  std::string page_;  // the last exposed page, while nothing has changed
  bool page_is_old_ = true;
  std::set<std::pair<std::string, std::string>> shown_chains_;
  std::map<gateway::RequestId, Open> open_;
  gateway::RequestId next_id_ = 1;
  std::map<std::string, long> arrivals_;
  std::optional<double> wake_at_s_;

  std::size_t controller_ = 0;  // the one being polled
  std::optional<double> poll_began_s_;
  double next_poll_s_ = 0;
  dispatch::TableVersion asked_after_;
  dispatch::TableVersion last_obeyed_;  // in this life
};

}  // namespace windlass::simulation
