// Implements sim_world.h.
#include "tests/simulation/sim_world.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/pod.h"

namespace windlass::simulation {
namespace {

using nlohmann::json;

constexpr double kGarbageS = 2;  // the garbage collector's period

bool is_active(const json& pod) {
  const auto worker = controller::worker_of(pod);
  return worker && !worker->finished && !worker->terminating && !worker->draining_since_s;
}

}  // namespace

SimWorld::SimWorld(Scenario scenario)
    : scenario_(std::move(scenario)),
      journal_(scenario_.verbose),
      api_({.seed = scenario_.seed, .history = 400}),
      cluster_(timeline_, api_, journal_, scenario_),
      invariants_(timeline_, api_, journal_),
      clients_(scenario_.seed, "clients") {
  timeline_.on_advance = [this](double now_s) { api_.set_now(now_s); };
  for (const json& one : scenario_.classes) api_.seed_object(one);
  for (const auto& [name, value] : std::vector<std::pair<std::string, int>>{{"gold", 1000}, {"silver", 100}, {"bronze", -10}}) {
    api_.seed_object(
        {{"apiVersion", "scheduling.k8s.io/v1"}, {"kind", "PriorityClass"}, {"metadata", {{"name", name}}}, {"value", value}});
  }
  for (const ServiceScenario& service : scenario_.services) {
    const json stored = api_.seed_object({{"apiVersion", "windlass.dev/v1alpha1"},
                                          {"kind", "ModelService"},
                                          {"metadata", {{"name", service.name}, {"namespace", kNamespace}}},
                                          {"spec", service.spec}});
    invariants_.spec_changed(stored);
    arrivals_.emplace_back(scenario_.seed, "arrivals of " + service.name);
  }
  cluster_.on_killed_by_deletion = [this](const json& pod, std::size_t calls) { invariants_.killed_by_deletion(pod, calls); };
  api_.on_write = [this](const fakes::WriteAttempt& write) { invariants_.wrote(write, controller_list_); };

  for (int i = 0; i < scenario_.gateways; ++i) {
    auto gateway = std::make_unique<SimGateway>(timeline_, cluster_, journal_, fmt::format("gateway-{}", i), scenario_.seed);
    gateway->on_finished = [this](const std::string& model, int code, double arrived_s) {
      invariants_.request_ended(model, code, arrived_s);
    };
    gateway->on_violation = [this](const std::string& what) { journal_.violate(timeline_.now_s(), "gateway", what); };
    gateway->table_late_s = scenario_.faults.table_late_s;
    gateways_.push_back(std::move(gateway));
  }
  for (int i = 0; i < scenario_.controllers; ++i) {
    auto one = std::make_unique<SimController>(timeline_, api_, journal_, fmt::format("controller-{}", i), scenario_.seed,
                                               scenario_.faults);
    SimController* controller = one.get();
    controller->scrape = [this, controller](const kube::HttpRequest& request) -> Result<kube::HttpResponse> {
      for (const auto& gateway : gateways_) {
        if (request.url.find(gateway->admin_address()) == std::string::npos) continue;
        if (request.url.ends_with("/latencies")) return kube::HttpResponse{404, {}, ""};  // its histograms are not simulated
        auto page = gateway->metrics_page();
        if (page.ok() && gateway->page_fault == PageFault::kNone)
          invariants_.page_read(controller->identity(), gateway->name());
        return page;
      }
      return cluster_.metrics_page(request.url);
    };
    controller->on_violation = [this](const std::string& check, const std::string& what) {
      journal_.violate(timeline_.now_s(), check, what);
    };
    controller->after_step = [this](SimController& controller) { stepped(controller); };
    controller_list_.push_back(controller);
    controllers_.push_back(std::move(one));
  }
  chaos_ = std::make_unique<Chaos>(timeline_, api_, journal_, scenario_, cluster_, invariants_, controller_list_, gateways_);

  timeline_.every(SimCluster::kStepS, [this] { cluster_.step(); });
  timeline_.every(kGarbageS, [this] { collect_garbage(); });
  timeline_.every(SimGateway::kPollS, [this] { poll_tables(); });
  for (SimController* one : controller_list_) one->start();
  for (std::size_t i = 0; i < controllers_.size(); ++i) step_controller(i);
  for (std::size_t i = 0; i < scenario_.services.size(); ++i) arrive(i);
  timeline_.at(scenario_.faults_from_s, [this] { chaos_->begin(); });
}

SimWorld::~SimWorld() {
  timeline_.on_advance = nullptr;
  for (auto& gateway : gateways_) gateway->on_finished = [](const std::string&, int, double) {};
}

void SimWorld::stop_faults() {
  journal_.note(timeline_.now_s(), "faults stop");
  chaos_->end();
}

void SimWorld::set_load(const std::string& service, double rate_per_s) {
  for (ServiceScenario& one : scenario_.services) {
    if (one.name == service) one.load = {{0, rate_per_s}};
  }
}

void SimWorld::step_controller(std::size_t index) {
  controllers_[index]->run();
  timeline_.at(controllers_[index]->due_s(), [this, index] { step_controller(index); });
}

void SimWorld::poll_tables() {
  for (auto& gateway : gateways_) {
    gateway->poll(controllers_.size(), [this](std::size_t index) { return controllers_[index]->table_source(); });
  }
  std::vector<const dispatch::RoutingTable*> tables;
  for (auto& gateway : gateways_) tables.push_back(gateway->table());
  invariants_.gateways_hold(tables);
}

void SimWorld::collect_garbage() {
  if (cluster_.api_down || garbage_version_ == api_.version()) return;
  api_.collect_garbage();
  garbage_version_ = api_.version();
}

void SimWorld::stepped(const SimController& controller) {
  invariants_.stepped(controller, controller_list_);
  const auto& plan = controller.core().last_plan();
  if (!on_plan || !plan) return;
  std::uint64_t& seen = plans_seen_[controller.identity()];
  if (seen == controller.core().plans_made()) return;
  seen = controller.core().plans_made();
  on_plan(*plan);
}

// One service's clients. Requests arrive after exponential times, drawn again every second so that a change of the rate takes
// effect immediately.
void SimWorld::arrive(std::size_t index) {
  const ServiceScenario& service = scenario_.services[index];
  double rate_per_s = 0;
  for (const LoadStep& step : service.load) {
    if (step.from_s <= timeline_.now_s()) rate_per_s = step.rate_per_s;
  }
  const double wait_s = rate_per_s > 0 ? arrivals_[index].exponential(rate_per_s) : 2;
  if (wait_s > 1) {
    timeline_.after(1, [this, index] { arrive(index); });
    return;
  }
  timeline_.after(wait_s, [this, index] {
    const ServiceScenario& one = scenario_.services[index];
    std::vector<SimGateway*> up;
    for (const auto& gateway : gateways_) {
      if (gateway->up()) up.push_back(gateway.get());
    }
    if (!up.empty()) {
      const std::string model = one.spec["model"]["servedName"];
      const double length = clients_.uniform(0.5, 1.5);
      const int tokens = std::max(2, static_cast<int>(one.output_tokens * length));
      SimGateway& gateway = *up[clients_.bits() % up.size()];
      invariants_.request_began(model);
      gateway.request(model, tokens, length);
    }
    arrive(index);
  });
}

const SimController* SimWorld::leader() const {
  const auto found = std::find_if(controllers_.begin(), controllers_.end(), [](const auto& one) { return one->leading(); });
  return found == controllers_.end() ? nullptr : found->get();
}

int SimWorld::active_workers(const std::string& service) const {
  int count = 0;
  api_.visit(kube::resources::kPods, [&](const json& pod) {
    const auto worker = controller::worker_of(pod);
    count += worker && worker->service == service && is_active(pod) ? 1 : 0;
  });
  return count;
}

int SimWorld::ready_workers(const std::string& service) const {
  int count = 0;
  api_.visit(kube::resources::kPods, [&](const json& pod) {
    const auto worker = controller::worker_of(pod);
    count += worker && worker->service == service && worker->ready && is_active(pod) ? 1 : 0;
  });
  return count;
}

json SimWorld::status(const std::string& service) const {
  const json* found = api_.peek(kube::resources::kModelServices, kNamespace, service);
  return found == nullptr ? json::object() : found->value("status", json::object());
}

const planner::ServicePlan* SimWorld::plan(const std::string& service) const {
  const SimController* lead = leader();
  if (lead == nullptr || !lead->core().last_plan()) return nullptr;
  for (const planner::ServicePlan& one : lead->core().last_plan()->services) {
    if (one.id.name == service) return &one;
  }
  return nullptr;
}

Tally SimWorld::tally(const std::string& model) const {
  const auto& all = invariants_.tallies();
  const auto found = all.find(model);
  return found == all.end() ? Tally{} : found->second;
}

double SimWorld::worker_rate(const std::string& service) const {
  const planner::ServicePlan* now = plan(service);
  if (now == nullptr || now->desired_workers() == 0) return 0;
  return now->predicted.requests_per_s / now->desired_workers();
}

}  // namespace windlass::simulation
