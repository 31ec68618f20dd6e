// See controller.h.
#include "controller/reconcile/controller.h"

#include <algorithm>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "controller/kube/events.h"
#include "controller/reconcile/apply.h"
#include "controller/reconcile/routes.h"
#include "controller/reconcile/status.h"
#include "planner/policy/make_plan.h"

namespace windlass::controller {
namespace {

constexpr double kSoonS = 0.25;     // while workers start, drain or end
constexpr double kStandbyMaxS = 2;  // a standby looks at the lease at least this often

template <class Family>
void drop_unused(const Family& family, std::set<std::map<std::string, std::string>>& before,
                 std::set<std::map<std::string, std::string>> now) {
  for (const auto& labels : before) {
    if (!now.contains(labels)) family.remove(labels);
  }
  before = std::move(now);
}

}  // namespace

Controller::Controller(ObjectStore& store, WorkerRuntime& runtime, Leadership& leadership, kube::HttpTransport& scraper,
                       RoutingPublisher& publisher, metrics::ControllerMetrics& metrics, ControllerOptions options)
    : store_(store),
      runtime_(runtime),
      leadership_(leadership),
      publisher_(publisher),
      metrics_(metrics),
      options_(options),
      signals_(std::make_unique<Signals>(scraper, metrics, options.signals)),
      scraper_(scraper) {}

Controller::~Controller() = default;

Outcome Controller::step(Instant now) {
  if (!plan_clock_offset_s_) plan_clock_offset_s_ = now.wall_s - now.monotonic_s;
  leadership_.step(now);
  // Standbys keep their caches warm too, so that a new leader can decide at once.
  store_.step(now);
  runtime_.step(now);
  const bool leads = leadership_.leading(now.monotonic_s);
  metrics_.leader.set(leads ? 1 : 0);
  if (leads != leading_) leads ? take_lead(now) : lose_lead();
  if (!leads) return RequeueAfter{std::clamp(leadership_.next_step_at() - now.monotonic_s, 0.05, kStandbyMaxS)};

  std::string problem = store_.problem();
  if (const std::string more = runtime_.problem(); !more.empty()) problem += (problem.empty() ? "" : "\n") + more;
  if (problem != last_problem_) {
    if (!problem.empty()) spdlog::warn("observe: {}", problem);
    last_problem_ = problem;
  }
  if (!problem.empty()) metrics_.reconcile_errors.with({{"step", "observe"}}).add();
  if (!store_.synced() || !runtime_.synced())
    return Retry{problem.empty() ? "reading the cluster for the first time" : problem};

  if (now.monotonic_s >= next_scrape_s_) scrape(now);
  const Observation observation = observe(store_, runtime_, *signals_, state_, now, now.monotonic_s + *plan_clock_offset_s_);
  planner::Plan plan = planner::make_plan(observation.snapshot);
  remember(observation, plan);

  const dispatch::TableVersion table =
      publisher_.publish(routes(observation, state_, options_.max_queued), leadership_.term(), now.monotonic_s);
  const std::vector<GatewayPeer> gateways = publisher_.gateways(now.monotonic_s);
  const ApplyContext context{observation, plan, runtime_, *signals_, gateways, table, now};
  Applied applied = apply(context, state_);
  write_statuses(observation, plan, now, applied.errors);
  for (const Happening& one : applied.happenings) {
    spdlog::info("{}/{}: {}: {}", one.service->metadata.name_space, one.service->metadata.name, one.reason, one.message);
    // An event is for people; that it could not be written changes nothing.
    if (const auto told = store_.record_event(*one.service, one.warning, one.reason, one.message, now); !told.ok()) {
      spdlog::debug("event not written: {}", told.error().message);
    }
  }
  count(observation, plan);
  snapshot_ = observation.snapshot;
  plan_ = std::move(plan);
  ++plans_made_;

  if (!applied.errors.empty()) {
    for (const std::string& error : applied.errors) {
      metrics_.reconcile_errors.with({{"step", "apply"}}).add();
      spdlog::warn("apply: {}", error);
    }
    return Retry{applied.errors.front()};
  }
  if (applied.changed) return RequeueAfter{0};
  if (applied.waiting) return RequeueAfter{kSoonS};
  return Done{};
}

void Controller::take_lead(Instant now) {
  leading_ = true;
  state_ = {};
  state_.leading_since_s = now.monotonic_s;
  signals_ = std::make_unique<Signals>(scraper_, metrics_, options_.signals);
  spdlog::info("leading, term {}", leadership_.term());
}

void Controller::lose_lead() {
  leading_ = false;
  publisher_.withdraw();
  const std::string problem = leadership_.problem();
  spdlog::warn("no longer leading{}{}", problem.empty() ? "" : ": ", problem);
}

void Controller::scrape(Instant now) {
  next_scrape_s_ = now.monotonic_s + options_.scrape_period_s;
  ScrapeTargets targets;
  targets.gateways = publisher_.gateways(now.monotonic_s);
  targets.workers = runtime_.workers();
  for (const api::ModelService& service : store_.model_services()) {
    targets.models.push_back(query_of(service));
    targets.engines[service.metadata.uid] = api::to_string(service.spec.engine.type);
  }
  signals_->scrape(targets, now.monotonic_s);
}

void Controller::remember(const Observation& observation, const planner::Plan& plan) {
  std::set<std::string> there;
  for (std::size_t i = 0; i < observation.services.size(); ++i) {
    const planner::ServicePlan& decided = plan.services.at(i);
    there.insert(decided.id.uid);
    ServiceMemory& memory = state_.services[decided.id.uid];
    memory.policy = decided.memory;
    memory.last_desired = decided.desired_workers();
    for (const planner::PoolPlan& pool : decided.pools) memory.pools[pool.name] = pool;
  }
  std::erase_if(state_.services, [&](const auto& one) { return !there.contains(one.first); });
}

void Controller::write_statuses(const Observation& observation, const planner::Plan& plan, Instant now,
                                std::vector<std::string>& errors) {
  const std::string time = kube::rfc3339(now.wall_s);
  const auto write = [&](const api::ModelService& service, const api::ModelServiceStatus& status, ServiceMemory& memory) {
    const bool different = meaningfully_different(service.status, status);
    const bool due = now.monotonic_s - memory.status_written_s >= options_.load_status_period_s;
    if (!different && (!due || service.status == status)) return;
    if (const auto written = store_.write_status(service, status); written.ok()) {
      memory.status_written_s = now.monotonic_s;
    } else if (written.error().code != ErrorCode::kNotFound) {
      errors.push_back(written.error().within("writing the status of " + service.metadata.name).message);
    }
  };
  for (std::size_t i = 0; i < observation.services.size(); ++i) {
    const api::ModelService& service = *observation.services[i];
    ServiceMemory& memory = state_.services[service.metadata.uid];
    const api::ModelServiceStatus status =
        status_of(service, observation.snapshot.services[i], observation.workers.at(service.metadata.uid), plan.services.at(i),
                  &memory, time);
    write(service, status, memory);
  }
  for (const api::ModelService& service : store_.model_services()) {
    const auto taken = observation.names_taken.find(service.metadata.uid);
    if (taken == observation.names_taken.end()) continue;
    ServiceMemory unused;
    unused.status_written_s = now.monotonic_s;
    write(service, name_taken_status(service, taken->second, time), unused);
  }
  for (const auto& [name, object] : observation.classes) {
    const auto capacity = observation.capacity.find(name);
    const api::AcceleratorClassStatus status =
        status_of(*object, capacity == observation.capacity.end() ? GpuCapacity{} : capacity->second, observation);
    if (status == object->status) continue;
    if (const auto written = store_.write_status(*object, status);
        !written.ok() && written.error().code != ErrorCode::kNotFound) {
      errors.push_back(written.error().within("writing the status of AcceleratorClass " + name).message);
    }
  }
}

void Controller::count(const Observation& observation, const planner::Plan& plan) {
  std::set<std::map<std::string, std::string>> desired_now;
  std::set<std::map<std::string, std::string>> service_now;
  std::set<std::map<std::string, std::string>> attained_now;
  for (std::size_t i = 0; i < observation.services.size(); ++i) {
    const planner::ServiceId& id = plan.services.at(i).id;
    std::map<std::string, int> by_role = {{"unified", 0}};
    for (const planner::PoolPlan& pool : plan.services.at(i).pools) by_role[dispatch::to_string(pool.role)] += pool.workers;
    for (const auto& [role, workers] : by_role) {
      const std::map<std::string, std::string> labels = {{"namespace", id.name_space}, {"name", id.name}, {"role", role}};
      metrics_.desired_workers.with(labels).set(workers);
      desired_now.insert(labels);
    }
    const std::map<std::string, std::string> labels = {{"namespace", id.name_space}, {"name", id.name}};
    const auto& workers = observation.workers.at(id.uid);
    metrics_.ready_workers.with(labels).set(
        static_cast<double>(std::count_if(workers.begin(), workers.end(), [](const Worker& one) {
          return one.ready && !one.draining_since_s && !one.terminating;
        })));
    service_now.insert(labels);
    if (const auto& attainment = observation.snapshot.services[i].demand.attainment) {
      metrics_.slo_attainment_ratio.with(labels).set(attainment->value);
      attained_now.insert(labels);
    }
  }
  drop_unused(metrics_.desired_workers, desired_labels_, std::move(desired_now));
  drop_unused(metrics_.ready_workers, service_labels_, std::move(service_now));
  drop_unused(metrics_.slo_attainment_ratio, attained_labels_, std::move(attained_now));
}

}  // namespace windlass::controller
