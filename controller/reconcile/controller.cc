// See controller.h.
#include "controller/reconcile/controller.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "controller/kube/events.h"
#include "controller/reconcile/apply.h"
#include "controller/reconcile/routes.h"
#include "controller/reconcile/status.h"
#include "planner/policy/asked_workload.h"
#include "planner/policy/make_plan.h"

namespace windlass::controller {
namespace {

constexpr double kSoonS = 0.25;     // while workers start, drain or end
constexpr double kStandbyMaxS = 2;  // maximum time between a standby's looks at the lease

// Time limit of apply in one step. Then the world is observed again, and the rest comes first.
constexpr double kMaxApplyS = 2;
constexpr double kMaxStatusS = 1;
constexpr double kMaxEventsS = 0.25;

// For the gauges. With more services than this per second, rarer: each has about sixty series.
constexpr double kReportPeriodS = 1, kReportedPerS = 1000;
// between two writes of one service's status, so that a flapping service does not cause many writes
constexpr double kStatusGapS = 1;
// Writes per second of statuses that differ only in their figures. At ten thousand services, one each every 30 s would be most
// of what etcd can take.
constexpr double kFigureWritesPerS = 25;
constexpr double kStatusAgainS = 5;  // retry time of a status that could not be written
constexpr double kTellAgainS = 30;   // retry time of a condition that could not be written

}  // namespace

Controller::Controller(ObjectStore& store, WorkerRuntime& runtime, Leadership& leadership, kube::HttpTransport& scraper,
                       RoutingPublisher& publisher, metrics::ControllerMetrics& metrics, ControllerOptions options)
    : store_(store),
      runtime_(runtime),
      leadership_(leadership),
      publisher_(publisher),
      metrics_(metrics),
      options_(std::move(options)),
      signals_(std::make_unique<Signals>(scraper, metrics, options_.signals)),
      scraper_(scraper),
      report_(metrics) {}

Controller::~Controller() = default;

Outcome Controller::step(Instant now) {
  if (!plan_clock_offset_s_) plan_clock_offset_s_ = now.wall_s - now.monotonic_s;
  if (options_.stopwatch) now_taken_s_ = part_began_s_ = options_.stopwatch();
  leadership_.step(now);
  // Standbys keep their caches up to date too, so that a new leader has little to catch up on.
  store_.step(now);
  runtime_.step(now);
  timed("cache");
  // The API server may have made us wait, or the process may have been suspended. Take the time again for what follows.
  now = later(now);
  if (options_.stopwatch) now_taken_s_ = options_.stopwatch();
  const bool leads = leadership_.leading(now.monotonic_s);
  metrics_.leader.set(leads ? 1 : 0);
  // A different term than in the last step: somebody else may have led in between.
  if (leading_ && (!leads || leadership_.term() != term_)) lose_lead();
  if (leads && !leading_) take_lead(now);
  if (!leads) return RequeueAfter{std::clamp(leadership_.next_step_at() - now.monotonic_s, 0.05, kStandbyMaxS)};

  const std::string problem = note_problems();
  if (!store_.synced() || !runtime_.synced()) return Retry{problem.empty() ? "reading the cluster" : problem};
  Observation observation = look(now);
  planner::Plan plan = planner::make_plan(observation.snapshot);
  remember(observation, plan);
  report_.count(plan);
  timed("plan");

  // The next step finds out whether we still lead.
  if (!keep_lead(now)) return RequeueAfter{0};
  const dispatch::TableVersion table =
      publisher_.publish(routes(observation, state_, options_.max_queued), term_, now.monotonic_s);
  const std::vector<GatewayPeer> gateways = publisher_.gateways(now.monotonic_s);
  const ApplyContext context{observation, plan, runtime_, scraper_, *signals_, gateways, table, now, within(kMaxApplyS, now)};
  Applied applied = apply(context, state_);
  timed("apply");
  note(applied);
  if (!keep_lead(now)) return RequeueAfter{0};
  write_down(observation, plan, now, applied.errors);
  decision_ = std::make_shared<const Decision>(std::move(observation.snapshot), std::move(plan));
  ++plans_made_;
  return outcome_of(applied);
}

// Logs and counts current problems. Returns them.
std::string Controller::note_problems() {
  std::string problem = store_.problem();
  if (const std::string more = runtime_.problem(); !more.empty()) problem += (problem.empty() ? "" : "\n") + more;
  if (problem != last_problem_) {
    if (!problem.empty()) spdlog::warn("observe: {}", problem);
    last_problem_ = problem;
  }
  if (!problem.empty()) metrics_.reconcile_errors.with({{"step", "observe"}}).add();
  return problem;
}

Observation Controller::look(Instant now) {
  std::vector<Worker> workers = runtime_.workers();
  if (now.monotonic_s >= next_scrape_s_) {
    scrape(workers, now);
    timed("scrape");
  }
  Observation observation =
      observe(store_, runtime_, std::move(workers), *signals_, state_, now, now.monotonic_s + *plan_clock_offset_s_);
  calibrate(observation, now);
  const bool new_offers = options_.offers != nullptr && options_.offers->attach(observation.snapshot);
  const bool new_probes = options_.probes != nullptr && options_.probes->waits();
  if ((new_offers || new_probes) && options_.on_question) options_.on_question();
  timed("observe");
  return observation;
}

// Writes statuses, events and metrics.
void Controller::write_down(const Observation& observation, const planner::Plan& plan, Instant now,
                            std::vector<std::string>& errors) {
  const std::vector<api::ModelServiceStatus> statuses = write_statuses(observation, plan, now, errors);
  write_class_statuses(observation, now, errors);
  write_profile_statuses(now, errors);
  tell_broken(now, errors);
  events_.write(store_, now, within(kMaxEventsS, now));
  if (now.monotonic_s >= next_report_s_) {
    next_report_s_ =
        now.monotonic_s + std::max(kReportPeriodS, static_cast<double>(observation.services.size()) / kReportedPerS);
    report_.publish(observation, plan, statuses, state_, store_.broken_objects(), now);
  }
  timed("status");
}

Outcome Controller::outcome_of(const Applied& applied) const {
  for (const std::string& error : applied.errors) {
    metrics_.reconcile_errors.with({{"step", "apply"}}).add();
    spdlog::warn("apply: {}", error);
  }
  if (!applied.errors.empty()) return Retry{applied.errors.front()};
  if (applied.changed) return RequeueAfter{0};
  if (applied.waiting) return RequeueAfter{kSoonS};
  return Done{};
}

void Controller::take_lead(Instant now) {
  leading_ = true;
  term_ = leadership_.term();
  leadership_.acts_for(term_);
  state_ = {};
  state_.leading_since_s = now.monotonic_s;
  if (options_.probes != nullptr) options_.probes->keep({});  // what was learned is lost with the state
  // A standby's watches may be late or broken without its knowledge. A new leader must know everything that its predecessors
  // did, or it would do it again, so read everything again.
  store_.read_anew(now);
  runtime_.read_anew(now);
  signals_ = std::make_unique<Signals>(scraper_, metrics_, options_.signals);
  spdlog::info("leading, term {}", term_);
}

void Controller::lose_lead() {
  leading_ = false;
  publisher_.withdraw();
  events_.clear();
  report_.clear();
  next_report_s_ = 0;
  const std::string problem = leadership_.problem();
  spdlog::warn("no longer leading{}{}", problem.empty() ? "" : ": ", problem);
}

void Controller::note(const Applied& applied) {
  for (const Happening& one : applied.happenings) {
    spdlog::info("{}/{}: {}: {}", one.service->metadata.name_space, one.service->metadata.name, one.reason, one.message);
    events_.add(one);
  }
}

void Controller::scrape(std::vector<Worker>& workers, Instant now) {
  next_scrape_s_ = now.monotonic_s + options_.scrape_period_s;
  ScrapeTargets targets;
  targets.gateways = publisher_.gateways(now.monotonic_s);
  targets.workers = std::move(workers);
  for (const api::ModelService& service : store_.model_services()) {
    targets.models.push_back(query_of(service));
    targets.engines[service.metadata.uid] = api::to_string(service.spec.engine.type);
  }
  signals_->scrape(targets, now.monotonic_s);
  workers = std::move(targets.workers);
}

void Controller::remember(const Observation& observation, const planner::Plan& plan) {
  std::set<std::string> there;
  for (std::size_t i = 0; i < observation.services.size(); ++i) {
    const planner::ServicePlan& decided = plan.services.at(i);
    there.insert(decided.id.uid);
    ServiceMemory& memory = state_.services[decided.id.uid];
    if (const auto& shift = decided.memory.shift; shift && shift != memory.policy.shift) {
      events_.add({observation.services[i], false, "WorkloadShifted", text_of(*shift) + "; the strategies are asked again"});
    }
    memory.policy = decided.memory;
    memory.last_desired = decided.desired_workers();
    for (const planner::Pool& pool : decided.pools) memory.pools[pool.id()] = pool;
    memory.dispatch = decided.dispatch;
    memory.starts.observe(observation.workers.at(decided.id.uid));
  }
  std::erase_if(state_.services, [&](const auto& one) { return !there.contains(one.first); });
}

std::vector<api::ModelServiceStatus> Controller::write_statuses(const Observation& observation, const planner::Plan& plan,
                                                                Instant now, std::vector<std::string>& errors) {
  const std::string time = kube::rfc3339(now.wall_s);
  std::erase_if(state_.status_again_s, [&](const auto& one) { return one.second <= now.monotonic_s; });
  const std::size_t count = observation.services.size();
  const double figures_period_s = std::max(options_.load_status_period_s, static_cast<double>(count) / kFigureWritesPerS);
  // A new leader has written none yet: with many services, their first figures are spread over the period.
  const auto first_figures_s = [&](const std::string& uid) {
    constexpr std::size_t kParts = 1024;
    if (!(figures_period_s > options_.load_status_period_s)) return 0.0;
    return figures_period_s * static_cast<double>(std::hash<std::string>{}(uid) % kParts) / kParts;
  };
  const auto write = [&](const api::ModelService& service, const api::ModelServiceStatus& status, ServiceMemory& memory) {
    if (state_.status_again_s.contains(service.metadata.uid)) return;
    const double since_s =
        memory.status_written_s ? now.monotonic_s - *memory.status_written_s : std::numeric_limits<double>::infinity();
    const bool new_spec = service.status.observed_generation != status.observed_generation;
    const bool different = new_spec || (since_s >= kStatusGapS && meaningfully_different(service.status, status));
    const bool due = memory.status_written_s
                         ? since_s >= figures_period_s
                         : now.monotonic_s - state_.leading_since_s >= first_figures_s(service.metadata.uid);
    if (!different && (!due || service.status == status)) return;
    if (const auto written = store_.write_status(service, status); written.ok()) {
      memory.status_written_s = now.monotonic_s;
      metrics_.status_writes.with({{"kind", api::ModelService::kKind}}).add();
    } else if (written.error().code != ErrorCode::kNotFound) {
      status_failed(service.metadata.uid, written.error().within("writing the status of " + service.metadata.name), now,
                    errors);
    }
  };
  const std::function<bool()> time_is_up = within(kMaxStatusS, now);
  const std::size_t first = count == 0 ? 0 : state_.first_status % count;
  state_.first_status = 0;
  std::vector<api::ModelServiceStatus> statuses(count);
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t i = (first + k) % count;
    const api::ModelService& service = *observation.services[i];
    ServiceMemory& memory = state_.services[service.metadata.uid];
    statuses[i] = status_of(service, observation.snapshot.services[i], observation.workers.at(service.metadata.uid),
                            plan.services.at(i), &memory, time);
    mark_readable(statuses[i].conditions, service.metadata.generation, time);
    if (state_.first_status == 0 && time_is_up && time_is_up()) state_.first_status = i;
    if (state_.first_status == 0) write(service, statuses[i], memory);
  }
  for (const api::ModelService& service : store_.model_services()) {
    const auto taken = observation.names_taken.find(service.metadata.uid);
    if (taken == observation.names_taken.end()) continue;
    api::ModelServiceStatus status = name_taken_status(service, taken->second, time);
    mark_readable(status.conditions, service.metadata.generation, time);
    ServiceMemory unused;
    if (!meaningfully_different(service.status, status)) continue;
    write(service, status, unused);
  }
  return statuses;
}

void Controller::write_class_statuses(const Observation& observation, Instant now, std::vector<std::string>& errors) {
  for (const auto& [name, object] : observation.classes) {
    const auto capacity = observation.capacity.find(name);
    api::AcceleratorClassStatus status =
        status_of(*object, capacity == observation.capacity.end() ? GpuCapacity{} : capacity->second, observation);
    mark_readable(status.conditions, object->metadata.generation, kube::rfc3339(now.wall_s));
    if (const auto fits = data_sheet_condition(*object, observation.snapshot))
      api::set_condition(status.conditions, *fits, kube::rfc3339(now.wall_s));
    const std::string& uid = object->metadata.uid;
    if (status == object->status || state_.status_again_s.contains(uid)) continue;
    state_.status_again_s[uid] = now.monotonic_s + kStatusGapS;
    if (const auto written = store_.write_status(*object, status); written.ok()) {
      metrics_.status_writes.with({{"kind", api::AcceleratorClass::kKind}}).add();
    } else if (written.error().code != ErrorCode::kNotFound) {
      status_failed(uid, written.error().within("writing the status of AcceleratorClass " + name), now, errors);
    }
  }
}

// A conflict means that the decision used an old state, and a new one follows soon. Other errors will recur, so back off.
void Controller::status_failed(const std::string& uid, const Error& error, Instant now, std::vector<std::string>& errors) {
  state_.status_again_s[uid] = now.monotonic_s + (error.code == ErrorCode::kConflict ? kStatusGapS : kStatusAgainS);
  errors.push_back(error.message);
}

void Controller::write_profile_statuses(Instant now, std::vector<std::string>& errors) {
  const std::string time = kube::rfc3339(now.wall_s);
  for (const api::PerformanceProfile& profile : store_.performance_profiles()) {
    auto status = state_.calibration.status_to_write(profile, now.monotonic_s, time);
    if (!status) continue;
    mark_readable(status->conditions, profile.metadata.generation, time);
    // A failed write is retried as rarely as a successful one is repeated.
    state_.calibration.written(profile, now.monotonic_s);
    if (const auto written = store_.write_status(profile, *status); written.ok()) {
      metrics_.status_writes.with({{"kind", api::PerformanceProfile::kKind}}).add();
    } else if (written.error().code != ErrorCode::kNotFound) {
      errors.push_back(written.error().within("writing the status of PerformanceProfile " + profile.metadata.name).message);
    }
  }
}

void Controller::tell_broken(Instant now, std::vector<std::string>& errors) {
  std::map<std::string, ToldBroken> told;
  for (const BrokenObject& object : store_.broken_objects()) {
    const std::string key = object.kind + " " + object.name_space + "/" + object.name;
    const auto before = state_.told_broken.find(key);
    const bool news = before == state_.told_broken.end() || before->second.message != object.message;
    if (!news && (before->second.written || now.monotonic_s < before->second.again_s)) {
      told.insert(*before);
      continue;
    }
    const auto written = store_.write_condition(object, unreadable_condition(object, kube::rfc3339(now.wall_s)));
    told[key] = {object.message, written.ok(), now.monotonic_s + kTellAgainS};
    if (written.ok()) {
      metrics_.status_writes.with({{"kind", object.kind}}).add();
    } else if (written.error().code != ErrorCode::kNotFound) {
      errors.push_back(written.error().within("writing a condition of " + key).message);
    }
  }
  state_.told_broken = std::move(told);
}

void Controller::calibrate(const Observation& observation, Instant now) {
  std::vector<LiveCalibration::ServiceView> services;
  for (std::size_t i = 0; i < observation.services.size(); ++i) {
    const api::ModelService* service = observation.services[i];
    services.push_back({service, &observation.snapshot.services[i], &observation.workers.at(service->metadata.uid)});
  }
  state_.calibration.step(services, observation.snapshot.accelerators, store_.performance_profiles(), signals_.get(),
                          options_.probes, now.wall_s);
}

// The current time, given that the step's time is `began`.
Instant Controller::later(Instant began) const {
  const double passed_s = options_.stopwatch ? options_.stopwatch() - now_taken_s_ : 0;
  return {began.wall_s + passed_s, began.monotonic_s + passed_s};
}

// With a thousand services, a step may take longer than a lease lasts without renewal. Returns whether we lead now and have led
// since the step began.
bool Controller::keep_lead(Instant began) {
  const Instant now = later(began);
  if (options_.stopwatch) leadership_.step(now);
  return leadership_.leading(now.monotonic_s) && leadership_.term() == term_;
}

// Returns a function that is true once `seconds` have passed since this call, or once nothing may be written any more. Later
// writes would be refused, and each refusal would count as a failure. Empty without a stopwatch.
std::function<bool()> Controller::within(double seconds, Instant began) {
  if (!options_.stopwatch) return {};
  return [this, began, until_s = options_.stopwatch() + seconds] {
    return options_.stopwatch() >= until_s || !leadership_.leading(later(began).monotonic_s);
  };
}

void Controller::timed(const char* part) {
  if (!options_.stopwatch) return;
  const double now_s = options_.stopwatch();
  metrics_.reconcile_step_duration.with({{"step", part}}).observe(now_s - part_began_s_);
  part_began_s_ = now_s;
}

}  // namespace windlass::controller
