// See metrics_report.h.
#include "controller/reconcile/metrics_report.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "planner/perf/linear_model.h"
#include "planner/policy/tuning.h"

namespace windlass::controller {
namespace {

using metrics::Labels;
using planner::Reading;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Labels with(Labels labels, const char* name, std::string value) {
  labels[name] = std::move(value);
  return labels;
}

const char* state_label(const Worker& worker) {
  if (worker.draining_since_s || worker.terminating) return "draining";
  if (worker.failed) return "failed";
  if (worker.unschedulable) return "unschedulable";
  return worker.serves_its_role() ? "ready" : "starting";
}

double price_of(const Observation& observation, const std::string& accelerator) {
  const auto found = observation.classes.find(accelerator);
  return found == observation.classes.end() ? 0 : found->second->spec.price_per_hour.value_or(0);
}

int workers_of(const std::vector<planner::Pool>& pools) {
  int sum = 0;
  for (const planner::Pool& pool : pools) sum += pool.workers;
  return sum;
}

// From the workers' own pages: as old as the oldest ready worker's page; nullopt if one was never read.
struct WorkersSignal {
  bool any_ready = false;
  bool all_read = true;
  double at_s = kInfinity;
};
WorkersSignal workers_signal(const planner::Service& service) {
  WorkersSignal out;
  for (const planner::Worker& worker : service.workers) {
    if (worker.state != planner::WorkerState::kReady) continue;
    out.any_ready = true;
    out.all_read = out.all_read && worker.running.has_value();
    if (worker.running) out.at_s = std::min(out.at_s, worker.running->at_s);
  }
  return out;
}

}  // namespace

struct MetricsReport::ServiceView {
  const Observation& observation;
  const api::ModelService& service;
  const planner::Service& seen;
  const planner::ServicePlan& plan;
  const std::vector<planner::Denied>& denied;
  const std::vector<Worker>& workers;
  const api::ModelServiceStatus& status;
  const ServiceMemory* memory;
  Labels labels;
  Instant now;
};

void MetricsReport::put(const metrics::GaugeFamily& family, const Labels& labels, double value) {
  if (std::isnan(value)) return;
  auto& all = series_[&family];
  auto found = all.find(labels);
  if (found == all.end()) found = all.emplace(labels, Series{family.with(labels), 0}).first;
  found->second.gauge.set(value);
  found->second.round = round_;
}

void MetricsReport::sweep() {
  for (auto& [family, all] : series_) {
    for (auto one = all.begin(); one != all.end();) {
      if (one->second.round == round_) {
        ++one;
        continue;
      }
      family->remove(one->first);
      one = all.erase(one);
    }
  }
  ++round_;
}

void MetricsReport::clear() {
  sweep();  // no put() since the last sweep
  for (const auto& [uid, counted] : counted_) forget(counted);
  counted_.clear();
}

void MetricsReport::forget(const Counted& counted) {
  for (const std::string& reason : counted.decided) metrics_.decisions.remove(with(counted.labels, "reason", reason));
  for (const std::string& direction : counted.directions)
    metrics_.scale_changes.remove(with(counted.labels, "direction", direction));
}

void MetricsReport::count(const planner::Plan& plan) {
  std::set<std::string> there;
  for (const planner::ServicePlan& service : plan.services) there.insert(service.id.uid);
  // Handle ended workers first: a new one may have the same name.
  std::erase_if(counted_, [&](const auto& one) {
    if (there.contains(one.first)) return false;
    forget(one.second);
    return true;
  });
  for (const planner::ServicePlan& service : plan.services) {
    Counted& counted = counted_[service.id.uid];
    counted.labels = {{"namespace", service.id.name_space}, {"name", service.id.name}};
    std::set<std::string> reasons;
    for (const planner::Reason& reason : service.reasons) reasons.insert(reason.code);
    for (const std::string& code : reasons) {
      if (counted.reasons.contains(code)) continue;
      counted.decided.insert(code);
      metrics_.decisions.with(with(counted.labels, "reason", code)).add();
    }
    counted.reasons = std::move(reasons);
    const int desired = service.desired_workers();
    if (counted.desired && *counted.desired != desired) {
      const char* direction = desired > *counted.desired ? "up" : "down";
      counted.directions.insert(direction);
      metrics_.scale_changes.with(with(counted.labels, "direction", direction)).add();
    }
    counted.desired = desired;
  }
}

void MetricsReport::publish(const Observation& observation, const planner::Plan& plan,
                            const std::vector<api::ModelServiceStatus>& statuses, const ControllerState& state,
                            const std::vector<BrokenObject>& broken, Instant now) {
  std::map<planner::ServiceId, std::vector<planner::Denied>> denied;
  for (const planner::Denied& one : plan.denied) denied[one.id].push_back(one);
  for (std::size_t i = 0; i < observation.services.size(); ++i) {
    const api::ModelService& service = *observation.services[i];
    const auto memory = state.services.find(service.metadata.uid);
    const planner::ServiceId& id = plan.services.at(i).id;
    const ServiceView view{observation,
                           service,
                           observation.snapshot.services.at(i),
                           plan.services.at(i),
                           denied[id],
                           observation.workers.at(service.metadata.uid),
                           statuses.at(i),
                           memory == state.services.end() ? nullptr : &memory->second,
                           {{"namespace", id.name_space}, {"name", id.name}},
                           now};
    put_workers(view);
    put_plan(view);
    put_signals(view);
  }
  put_calibration(state);
  put_accelerators(observation);
  std::map<std::string, int> unreadable = {
      {api::ModelService::kKind, 0}, {api::AcceleratorClass::kKind, 0}, {api::PerformanceProfile::kKind, 0}};
  for (const BrokenObject& one : broken) ++unreadable[one.kind];
  for (const auto& [kind, count] : unreadable) put(metrics_.unreadable_objects, {{"kind", kind}}, count);
  sweep();
}

void MetricsReport::put_workers(const ServiceView& view) {
  std::map<std::string, int> by_state = {{"starting", 0}, {"ready", 0}, {"draining", 0}, {"failed", 0}, {"unschedulable", 0}};
  std::map<planner::WorkerTrouble, int> by_trouble;
  double cost = 0, oldest_drain_s = 0;
  int ready = 0, ready_gpus = 0;
  for (const Worker& worker : view.workers) {
    if (worker.finished) continue;
    ++by_state[state_label(worker)];
    if (worker.trouble != planner::WorkerTrouble::kNone) ++by_trouble[worker.trouble];
    if (!worker.unschedulable) cost += worker.gpus * price_of(view.observation, worker.accelerator);
    if (worker.serves_its_role() && !worker.draining_since_s && !worker.terminating) {
      ++ready;
      ready_gpus += worker.gpus;
    }
    if (worker.draining_since_s) oldest_drain_s = std::max(oldest_drain_s, view.now.wall_s - *worker.draining_since_s);
  }
  put(metrics_.ready_workers, view.labels, ready);
  put(metrics_.ready_gpus, view.labels, ready_gpus);
  for (const auto& [state, count] : by_state) put(metrics_.workers, with(view.labels, "state", state), count);
  for (const auto& [trouble, count] : by_trouble)
    put(metrics_.troubled_workers, with(view.labels, "trouble", planner::to_string(trouble)), count);
  put(metrics_.cost_per_hour, view.labels, cost);
  put(metrics_.drain_age_s, view.labels, oldest_drain_s);
  put(metrics_.drain_timeout_s, view.labels, view.service.spec.scaling.drain_timeout_s);
  if (view.seen.starts) {
    put(metrics_.worker_start_p90_s, view.labels, view.seen.starts->p90_s);
    put(metrics_.worker_starts, view.labels, view.seen.starts->count);
  }
}

void MetricsReport::put_plan(const ServiceView& view) {
  const planner::ServicePlan& plan = view.plan;
  const int desired = plan.desired_workers();
  put(metrics_.wanted_workers, view.labels, plan.memory.desired.value_or(desired));
  put(metrics_.recommended_workers, view.labels, plan.recommended_pools.empty() ? desired : workers_of(plan.recommended_pools));
  std::map<std::string, int> by_role = {{"unified", 0}};
  double gpus = 0, cost = 0;
  for (const planner::Pool& pool : plan.pools) {
    by_role[dispatch::to_string(pool.role)] += pool.workers;
    gpus += pool.workers * pool.spec.gpus();
    cost += pool.workers * pool.spec.gpus() * price_of(view.observation, pool.spec.accelerator);
  }
  for (const auto& [role, workers] : by_role) put(metrics_.desired_workers, with(view.labels, "role", role), workers);
  put(metrics_.desired_gpus, view.labels, gpus);
  put(metrics_.desired_cost_per_hour, view.labels, cost);
  put_denials(view);
  put_predictions(view);
  const planner::Slo& slo = view.seen.slo;
  put(metrics_.objective_ttft_s, view.labels, slo.ttft_s);
  put(metrics_.objective_tpot_s, view.labels, slo.tpot_s);
  put(metrics_.objective_ratio, view.labels, slo.percentile / 100);
  put(metrics_.service_info, with(view.labels, "model", view.service.served_name()), 1);
  put(metrics_.mode, with(view.labels, "mode", planner::to_string(view.seen.scaling.mode)), 1);
  for (const api::Condition& condition : view.status.conditions) {
    Labels labels = with(view.labels, "type", condition.type);
    labels["status"] = api::to_string(condition.status);
    labels["reason"] = condition.reason;
    put(metrics_.condition, labels, 1);
  }
}

void MetricsReport::put_denials(const ServiceView& view) {
  std::map<std::string, int> gpus_per_worker;  // by accelerator
  for (const auto* pools : {&view.plan.pools, &view.plan.recommended_pools}) {
    for (const planner::Pool& pool : *pools) gpus_per_worker.emplace(pool.spec.accelerator, pool.spec.gpus());
  }
  std::map<std::string, std::pair<int, int>> denied;  // by reason: workers, GPUs
  const auto deny = [&](const std::string& reason, int workers, const std::string& accelerator) {
    const auto known = gpus_per_worker.find(accelerator);
    const int each = known != gpus_per_worker.end() ? known->second
                     : gpus_per_worker.empty()      ? 1
                                                    : gpus_per_worker.begin()->second;
    denied[reason].first += workers;
    denied[reason].second += workers * each;
  };
  for (const planner::Denied& one : view.denied)
    deny(one.code, std::max(0, one.wanted_workers - one.granted_workers), one.accelerator);
  if (view.seen.refused && !denied.contains(view.seen.refused->code)) {
    const auto live = std::count_if(view.workers.begin(), view.workers.end(), [](const Worker& worker) {
      return !worker.finished && !worker.terminating && !worker.draining_since_s;
    });
    const int missing = view.plan.desired_workers() - static_cast<int>(live);
    if (missing > 0) deny(view.seen.refused->code, missing, "");
  }
  for (const auto& [reason, count] : denied) {
    put(metrics_.denied_workers, with(view.labels, "reason", reason), count.first);
    put(metrics_.denied_gpus, with(view.labels, "reason", reason), count.second);
  }
}

void MetricsReport::put_predictions(const ServiceView& view) {
  const planner::ServicePlan& plan = view.plan;
  if (plan.forecast) {
    put(metrics_.forecast_arrivals_per_s, view.labels, plan.forecast->requests_per_s);
    put(metrics_.forecast_horizon_s, view.labels, plan.forecast->horizon_s);
    if (plan.forecast->judged > 0) put(metrics_.forecast_error, view.labels, plan.forecast->relative_error);
    if (!plan.forecast->method.empty()) put(metrics_.forecast_method, with(view.labels, "method", plan.forecast->method), 1);
  }
  if (!plan.pools.empty()) {
    put(metrics_.predicted_ttft_s, view.labels, plan.predicted.ttft_s);
    put(metrics_.predicted_tpot_s, view.labels, plan.predicted.tpot_s);
    put(metrics_.predicted_requests_per_s, view.labels, plan.predicted.requests_per_s);
  }
}

void MetricsReport::put_signals(const ServiceView& view) {
  const double now_s = view.observation.snapshot.now_s;
  const planner::Demand& demand = view.seen.demand;
  const auto value = [&](const metrics::GaugeFamily& family, const std::optional<Reading>& reading) {
    if (reading && std::isfinite(reading->value)) put(family, view.labels, reading->value);
  };
  value(metrics_.arrivals_per_s, demand.arrivals_per_s);
  value(metrics_.slo_attainment_ratio, demand.attainment);
  const auto latency = [&](const metrics::GaugeFamily& family, const std::optional<Reading>& reading) {
    if (!reading || !std::isfinite(reading->value)) return;
    const bool exact = reading->bound == Bound::kNone;
    put(family, exact ? view.labels : with(view.labels, "bound", std::string(to_string(reading->bound))), reading->value);
  };
  latency(metrics_.ttft_s, demand.ttft_s);
  latency(metrics_.tpot_s, demand.tpot_s);

  double waiting = 0, kv_sum = 0;
  int kv_known = 0;
  for (const planner::Worker& worker : view.seen.workers) {
    if (worker.waiting && std::isfinite(worker.waiting->value)) waiting += worker.waiting->value;
    if (worker.state != planner::WorkerState::kReady || !worker.kv_use) continue;
    kv_sum += worker.kv_use->value;
    ++kv_known;
  }
  if (demand.queued && std::isfinite(demand.queued->value)) put(metrics_.backlog, view.labels, demand.queued->value + waiting);
  if (kv_known > 0) put(metrics_.kv_cache_usage, view.labels, kv_sum / kv_known);

  const auto signal = [&](const char* name, const std::optional<Reading>& reading) {
    const Labels labels = with(view.labels, "signal", name);
    const char* state = "missing";
    if (reading) {
      const double age_s = std::max(0.0, now_s - reading->at_s);
      put(metrics_.signal_age_s, labels, age_s);
      state = std::isfinite(reading->value) && age_s <= planner::kSignalMaxAgeS ? "fresh" : "stale";
    }
    put(metrics_.signal_state, with(labels, "state", state), 1);
  };
  signal("arrivals", demand.arrivals_per_s);
  signal("queued", demand.queued);
  signal("lengths", demand.input_tokens);
  signal("attainment", demand.attainment);
  signal("ttft", demand.ttft_s);
  signal("tpot", demand.tpot_s);
  if (const WorkersSignal workers = workers_signal(view.seen); workers.any_ready)
    signal("workers", workers.all_read ? std::optional(Reading{0, workers.at_s}) : std::nullopt);
}

void MetricsReport::put_calibration(const ControllerState& state) {
  for (const auto& [configuration, known] : state.calibration.calibrator().all()) {
    const planner::IterationEstimate& estimate = known.learner.estimate();
    if (!estimate.knows()) continue;
    const auto phase = [&](const char* name, double scale) {
      const Labels labels = {{"namespace", configuration.name_space},
                             {"model", configuration.model},
                             {"engine", configuration.engine},
                             {"accelerator", configuration.accelerator},
                             {"gpus_per_worker", std::to_string(configuration.gpus_per_worker)},
                             {"phase", name}};
      put(metrics_.calibration_scale, labels, scale);
      put(metrics_.calibration_error, labels, std::sqrt(estimate.noise_variance));
      put(metrics_.calibration_samples, labels, static_cast<double>(estimate.samples));
    };
    const planner::PhaseScales scales = scales_over(planner::LinearModel(known.learner.base()), known);
    phase("prefill", scales.prefill);
    phase("decode", scales.decode);
  }
}

void MetricsReport::put_accelerators(const Observation& observation) {
  std::map<std::string, int> used, pending;
  const auto add = [&](const Worker& worker) {
    if (!worker.finished) (worker.unschedulable ? pending : used)[worker.accelerator] += worker.gpus;
  };
  for (const auto& [uid, workers] : observation.workers) std::for_each(workers.begin(), workers.end(), add);
  std::for_each(observation.orphans.begin(), observation.orphans.end(), add);
  std::for_each(observation.strays.begin(), observation.strays.end(), add);
  for (const auto& [name, object] : observation.classes) {
    const Labels labels = {{"accelerator", name}};
    const auto capacity = observation.capacity.find(name);
    const GpuCapacity gpus = capacity == observation.capacity.end() ? GpuCapacity{} : capacity->second;
    put(metrics_.allocatable_gpus, labels, gpus.allocatable);
    put(metrics_.used_gpus, with(labels, "by", "windlass"), used[name]);
    put(metrics_.used_gpus, with(labels, "by", "others"), gpus.used_by_others);
    put(metrics_.pending_gpus, labels, pending[name]);
  }
}

}  // namespace windlass::controller
