// See live_calibration.h.
#include "controller/reconcile/live_calibration.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "controller/reconcile/measured_profiles.h"
#include "controller/reconcile/observe.h"
#include "controller/reconcile/signals.h"
#include "planner/perf/linear_model.h"

namespace windlass::controller {
namespace {

constexpr double kNewsShare = 0.02;     // a correction must have changed this much to be worth a write
constexpr double kSamplesGrowth = 1.1;  // or the samples must have grown this much
constexpr double kJustReadyS = 60;      // a worker is probed within this time of becoming ready

Configuration configuration_of(const api::ModelService& service, const std::string& accelerator,
                               const planner::GpuSplit& split) {
  return {service.metadata.name_space,
          profile_model(service),
          api::to_string(service.spec.engine.type),
          accelerator,
          split.gpus(),
          split.stages};
}

// Visits the service's entries, which are adjacent. Visiting all entries for every service would be quadratic.
template <class Known, class See>
void for_each_of(const Known& all, const api::ModelService& service, See see) {
  const Configuration first = configuration_of(service, "", 0);
  for (auto one = all.lower_bound(first); one != all.end(); ++one) {
    const Configuration& configuration = one->first;
    if (std::tie(configuration.name_space, configuration.model, configuration.engine) !=
        std::tie(first.name_space, first.model, first.engine))
      return;
    see(configuration);
  }
}

planner::Lengths lengths_of(const planner::Service& service) {
  const auto or_assumed = [](const std::optional<planner::Reading>& reading, double assumed) {
    return reading && std::isfinite(reading->value) && reading->value > 0 ? reading->value : assumed;
  };
  return {or_assumed(service.demand.input_tokens, service.workload.input_tokens),
          or_assumed(service.demand.output_tokens, service.workload.output_tokens)};
}

bool moved(const api::PhaseCalibrationStatus& before, const api::PhaseCalibrationStatus& now) {
  const auto differs = [](double a, double b) { return std::abs(a - b) > kNewsShare * std::max(std::abs(a), std::abs(b)); };
  if (before.samples == now.samples) return before.changes != now.changes;
  return before.samples == 0 || static_cast<double>(now.samples) >= kSamplesGrowth * static_cast<double>(before.samples) ||
         now.samples < before.samples || differs(before.scale, now.scale) || differs(before.error, now.error);
}

}  // namespace

const LiveCalibration::Fit& LiveCalibration::fit_of(const api::PerformanceProfile& profile, const Configuration& configuration,
                                                    const planner::ModelShape& shape,
                                                    const planner::AcceleratorSpec& accelerator,
                                                    const planner::LinearCoefficients& base) {
  Fit& fit = fits_[profile.metadata.uid];
  if (fit.generation == profile.metadata.generation && fit.of == configuration) return fit;
  fit = Fit{profile.metadata.generation, configuration, nullptr, ""};
  if (auto model = planner::iteration_model(profile.spec, shape, accelerator, base.kv_capacity_tokens); model.ok()) {
    fit.model = std::move(*model);
  } else {
    fit.problem = model.error().message;
  }
  return fit;
}

void LiveCalibration::step(const std::vector<ServiceView>& services, const std::vector<planner::AcceleratorState>& accelerators,
                           const std::vector<api::PerformanceProfile>& profiles, const Signals* signals, ProbeQuestions* probes,
                           double wall_s) {
  std::map<std::string, const planner::AcceleratorSpec*> specs;  // by AcceleratorClass
  for (const planner::AcceleratorState& one : accelerators) specs[one.spec.name] = &one.spec;
  std::set<std::string> workers;
  std::set<Configuration> asked_for;
  profile_of_.clear();
  const MeasuredProfiles by_model(profiles, accelerators);
  for (const ServiceView& view : services) {
    // Keep what was learned as long as the service exists, even while its shape or a class cannot be read.
    for_each_of(calibrator_.all(), *view.service, [&](const Configuration& configuration) { asked_for.insert(configuration); });
    for (const Worker& worker : *view.workers) workers.insert(worker.uid);
    if (!view.planned->shape) continue;
    const std::vector<MeasuredWorker> measured = by_model.of(*view.service);
    std::map<Configuration, planner::LinearCoefficients> bases;
    const auto base_of = [&](const std::string& accelerator,
                             const planner::GpuSplit& split) -> const planner::LinearCoefficients* {
      const auto spec = specs.find(accelerator);
      if (spec == specs.end() || split.gpus() < 1) return nullptr;
      const Configuration configuration = configuration_of(*view.service, accelerator, split);
      const auto [found, fresh] = bases.try_emplace(configuration);
      if (!fresh) return &found->second;
      found->second = planner::linear_coefficients(*view.planned->shape, *spec->second, split, view.planned->engine);
      for (const MeasuredWorker& one : measured) {
        const api::PerformanceProfile& profile = *one.profile;
        if (one.accelerator != accelerator || profile.spec.gpus_per_worker != split.gpus() || split.stages > 1) continue;
        // If two engines run the same configuration, the first one listed is the one that was measured.
        if (profile_of_.emplace(profile.metadata.uid, configuration).first->second != configuration) continue;
        const Fit& fit = fit_of(profile, configuration, *view.planned->shape, *spec->second, found->second);
        if (fit.model == nullptr) continue;
        calibrator_.adopt(configuration, profile, *fit.model, found->second);
        break;
      }
      return &found->second;
    };
    // A profile applies before its first worker is ready.
    for (const MeasuredWorker& one : measured) static_cast<void>(base_of(one.accelerator, one.profile->spec.gpus_per_worker));
    const planner::Lengths lengths = lengths_of(*view.planned);
    for (const Worker& worker : *view.workers) {
      const dispatch::Role role = role_of(worker);
      const planner::GpuSplit split(worker.gpus_of_server(), worker.stages);
      const WorkerPage* page = worker.ready && signals != nullptr ? signals->worker_page(worker.uid) : nullptr;
      const auto* base = page == nullptr ? nullptr : base_of(worker.accelerator, split);
      if (base == nullptr) continue;
      const Configuration configuration = configuration_of(*view.service, worker.accelerator, split);
      calibrator_.learn(configuration, worker.uid, *page, lengths, *base, role);
      if (probes != nullptr && role == dispatch::Role::kUnified)
        probe(view, configuration, worker, *page, *base, *probes, wall_s);
    }
    for (const auto& [configuration, unused] : bases) asked_for.insert(configuration);
  }
  calibrator_.keep(workers, asked_for);
  if (probes != nullptr) probes->keep(workers);
  std::set<std::string> there;
  for (const api::PerformanceProfile& profile : profiles) there.insert(profile.metadata.uid);
  std::erase_if(fits_, [&](const auto& one) { return !there.contains(one.first); });
  std::erase_if(written_s_, [&](const auto& one) { return !there.contains(one.first); });
}

// windlass-worker measures itself. A worker of another engine is probed if it has just become ready, its configuration is
// unknown and no requests are arriving; a request would wait behind the probe's and distort the measurement.
void LiveCalibration::probe(const ServiceView& view, const Configuration& configuration, const Worker& worker,
                            const WorkerPage& page, const planner::LinearCoefficients& base, ProbeQuestions& probes,
                            double wall_s) {
  const api::EngineSpec& engine = view.service->spec.engine;
  if (engine.type == api::EngineType::kWindlass || engine.probe == api::Probe::kOff) return;
  const planner::Demand& demand = view.planned->demand;
  const double arrivals = demand.arrivals_total ? demand.arrivals_total->value : -1;
  if (const auto answer = probes.take(worker.uid);
      answer && answer->question.configuration == configuration && answer->question.arrivals_total == arrivals) {
    calibrator_.learn(configuration, answer->measured, base, page.at_s);
  }
  const auto none = [](const std::optional<planner::Reading>& reading) { return reading && reading->value == 0; };
  const bool quiet = none(demand.arrivals_per_s) && none(demand.queued) && page.metrics.requests_running.value_or(1) == 0 &&
                     page.metrics.requests_waiting.value_or(0) == 0;
  const bool just_ready = worker.ready_s && wall_s - *worker.ready_s <= kJustReadyS;
  const bool leaves = worker.draining_since_s || worker.terminating || worker.finished;
  if (!quiet || !just_ready || leaves) return;
  const Calibration* known = calibrator_.find(configuration);
  if (known != nullptr && known->learner.estimate().largest_batch >= 1) return;
  const int context = view.planned->max_context_tokens;
  probes.ask({configuration, worker.name, worker.uid, worker.address, worker.token, view.service->served_name(),
              static_cast<double>(context > 0 ? context : view.planned->shape->max_context_tokens), worker.max_concurrency,
              arrivals});
}

std::vector<planner::WorkerEstimate> LiveCalibration::estimates(const api::ModelService& service) const {
  std::vector<planner::WorkerEstimate> out;
  for_each_of(calibrator_.all(), service, [&](const Configuration& configuration) {
    if (auto estimate = calibrator_.estimate(configuration)) out.push_back(std::move(*estimate));
  });
  return out;
}

std::optional<api::PerformanceProfileStatus> LiveCalibration::status_to_write(const api::PerformanceProfile& profile,
                                                                              double now_s,
                                                                              const std::string& now_rfc3339) const {
  api::PerformanceProfileStatus status = profile.status;
  status.observed_generation = profile.metadata.generation;
  api::Condition usable;
  usable.type = kUsable;
  usable.observed_generation = profile.metadata.generation;
  const auto configuration = profile_of_.find(profile.metadata.uid);
  bool news = false;
  if (configuration == profile_of_.end()) {
    usable.status = api::ConditionStatus::kUnknown;
    usable.reason = "NotInUse";
    usable.message = fmt::format("no ModelService of this namespace runs {} on AcceleratorClass {}", profile.spec.model,
                                 profile.spec.accelerator);
  } else if (const Fit& fit = fits_.at(profile.metadata.uid); fit.model == nullptr) {
    usable.status = api::ConditionStatus::kFalse;
    usable.reason = "DoesNotApply";
    usable.message = fit.problem + "; plans do not use it";
  } else {
    usable.status = api::ConditionStatus::kTrue;
    usable.reason = "InUse";
    usable.message = fmt::format("plans of {} on {} x {} start from it", profile.spec.model, profile.spec.gpus_per_worker,
                                 profile.spec.accelerator);
    if (const Calibration* known = calibrator_.find(configuration->second)) {
      const planner::IterationEstimate& estimate = known->learner.estimate();
      const api::CalibrationStatus now = to_status(*known, *fit.model, now_rfc3339);
      const api::CalibrationStatus& before = profile.status.calibration;
      if (estimate.decode_count > 0 && (moved(before.prefill, now.prefill) || moved(before.decode, now.decode))) {
        status.calibration = now;
        news = true;
      }
    }
  }
  api::set_condition(status.conditions, usable, now_rfc3339);
  const api::Condition* before = api::find_condition(profile.status.conditions, kUsable);
  const bool other_state = before == nullptr || before->status != usable.status || before->reason != usable.reason ||
                           status.observed_generation != profile.status.observed_generation;
  const auto last = written_s_.find(profile.metadata.uid);
  const bool due = last == written_s_.end() || now_s - last->second >= kWritePeriodS;
  if (!(other_state || news) || !due) return std::nullopt;
  return status;
}

}  // namespace windlass::controller
