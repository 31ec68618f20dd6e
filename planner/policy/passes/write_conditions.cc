// The "Conditions" pass: writes MetricsFresh, SLOMet, AbleToScale and TimesKnown. See passes.h.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "planner/policy/passes/passes.h"
#include "planner/policy/trouble.h"

namespace windlass::planner {
namespace {

Hint metrics_hint(const Draft& draft) {
  if (!draft.view.complete) return Hint{Truth::kFalse, "SignalsMissing", draft.view.problem};
  if (draft.view.silent_workers > 0) {
    return Hint{
        Truth::kTrue, "WorkersSilent",
        fmt::format("{} ready workers report no fresh metrics; no scale-down until they do", draft.view.silent_workers)};
  }
  return Hint{Truth::kTrue, "SignalsFresh", "arrival rate and queue length are fresh"};
}

Hint slo_hint(const Service& service, double now_s) {
  const auto& attainment = service.demand.attainment;
  if (!is_usable(attainment, now_s))
    return Hint{Truth::kUnknown, "NothingJudged", "no request finished within the objective's window"};
  const bool met = attainment->value * 100 >= service.slo.percentile - 1e-9;
  return Hint{met ? Truth::kTrue : Truth::kFalse, met ? "Attained" : "Missed",
              fmt::format("{:.4g} % of the requests in the last {:.0f} s met the objective; the target is {:.4g} %",
                          attainment->value * 100, service.slo.window_s, service.slo.percentile)};
}

// What is known of the times of one kind of worker. The messages have no measured figures, which change all the time.
Hint times_hint(const Service& service, const Configuration& configuration, double now_s) {
  constexpr std::int64_t kFewSamples = 12;  // a minute of one worker
  const WorkerSpec& spec = configuration.pool.spec;
  if (!(configuration.times.service_s > 0)) {
    return Hint{Truth::kUnknown, "NotPredicted",
                fmt::format("the class or the model's shape is unknown for workers of {}", text_of(spec))};
  }
  const WorkerEstimate* known = find_estimate(service.estimates, spec.accelerator, spec.split());
  if (known == nullptr) {
    const TimeErrors& errors = configuration.errors;
    return Hint{
        Truth::kFalse, "DataSheet",
        fmt::format("times of {} come from its data sheet: TPOT may be off by a factor of {:.3g}, TTFT by {:.3g}; a few "
                    "minutes of traffic, or a PerformanceProfile, would narrow that",
                    text_of(spec), errors.tpot, errors.ttft)};
  }
  if (known->estimate.drifted(now_s)) {
    return Hint{Truth::kFalse, "Drifted",
                fmt::format("iterations of {} no longer take what was measured, as after another engine version or on a "
                            "throttled GPU; predictions are wider until they are measured again",
                            text_of(spec))};
  }
  if (known->split() != spec.split()) {
    return Hint{Truth::kFalse, "OtherWorkers",
                fmt::format("times of {} come from {} x {}; a few minutes of traffic, or a PerformanceProfile, would narrow "
                            "predictions",
                            text_of(spec), known->gpus_per_worker, spec.accelerator)};
  }
  if (known->from_profile && !(known->estimate.decode_count > 0))
    return Hint{Truth::kTrue, "Profiled", "times come from a PerformanceProfile"};
  if (!known->from_profile && known->estimate.samples < kFewSamples) {
    return Hint{Truth::kFalse, "Measuring",
                fmt::format("times of {} are being measured; a minute of traffic makes them sure", text_of(spec))};
  }
  return Hint{Truth::kTrue, "Measured", "times are measured on workers of this model and engine"};
}

// Of all kinds of workers, the one of which least is known.
Hint times_hint(const Draft& draft, double now_s) {
  static constexpr std::array<std::string_view, 7> kLeastFirst = {"NotPredicted", "Drifted",  "DataSheet", "OtherWorkers",
                                                                  "Measuring",    "Profiled", "Measured"};
  Hint worst{Truth::kUnknown, "NoWorkers", "no worker is planned"};
  const auto rank = [](const Hint& hint) { return std::find(kLeastFirst.begin(), kLeastFirst.end(), hint.reason); };
  for (const Configuration& configuration : draft.effective) {
    if (configuration.pool.workers == 0) continue;
    Hint hint = times_hint(*draft.service, configuration, now_s);
    if (rank(hint) < rank(worst)) worst = std::move(hint);
  }
  return worst;
}

// The GPUs that are missing for the workers that a service needs.
Hint shortage_hint(const FleetDraft& fleet, const WorkerSpec& spec, std::string message) {
  const std::string code = shortage_of(fleet, spec);
  if (code == "NoRoomOnOneNode") message += fmt::format("; GPUs are free, but no node has {} of them", spec.tensor_parallel);
  return Hint{Truth::kFalse, code, std::move(message)};
}

Hint scale_hint(const Draft& draft, const FleetDraft& fleet) {
  const double now_s = fleet.snapshot->now_s;
  const Service& service = *draft.service;
  if (service.scaling.mode != Mode::kApply) {
    return Hint{Truth::kFalse, to_string(service.scaling.mode),
                fmt::format("scaling.mode is {}; worker counts are left unchanged", to_string(service.scaling.mode))};
  }
  if (!draft.chosen)
    return Hint{Truth::kFalse, draft.plan.feasible.reason, "worker counts are left unchanged: " + draft.plan.feasible.message};
  if (is_refused(service, now_s)) {
    return Hint{Truth::kFalse, service.refused->code,
                fmt::format("the cluster rejects new workers: {}; next attempt in {:.0f} s", service.refused->message,
                            service.refused->until_s - now_s)};
  }
  const int needed = std::max(draft.target.allowed, draft.target.on_any_class);
  if (draft.granted < needed && missing_workers(draft, draft.granted) <= 1e-6) {
    return Hint{Truth::kTrue, "SecondClass",
                fmt::format("{} has room for {} of {} workers; other accelerator classes serve the rest",
                            draft.chosen->pool.spec.accelerator, draft.granted, needed)};
  }
  if (draft.granted < needed_now(draft)) {
    const WorkerSpec& spec = draft.chosen->pool.spec;
    return shortage_hint(
        fleet, spec,
        fmt::format("{} workers of {} are needed, but only {} can get GPUs", needed_now(draft), text_of(spec), draft.granted));
  }
  for (std::size_t i = 0; i < draft.sides.pools.size(); ++i) {
    const SidePool& side = draft.sides.pools[i];
    const int needed_beside = std::min(draft.sides_wanted[i], side.workers(draft.granted));
    if (draft.sides_granted[i] >= needed_beside) continue;
    const WorkerSpec& spec = side.configuration.pool.spec;
    return shortage_hint(fleet, spec,
                         fmt::format("{} {}workers of {} are needed, but only {} can get GPUs{}", needed_beside,
                                     side.is_prefill() ? "prefill " : "", text_of(spec), draft.sides_granted[i],
                                     side.is_prefill() ? "; decode workers compute the other prompts" : ""));
  }
  if (!draft.target.limited_by.empty()) return Hint{Truth::kFalse, draft.target.limited_by, draft.target.limit_message};
  if (auto trouble = trouble_hint(service)) return *trouble;
  return Hint{Truth::kTrue, "AsNeeded", "all needed workers are planned"};
}

}  // namespace

void write_conditions(FleetDraft& fleet) {
  const double now_s = fleet.snapshot->now_s;
  for (Draft& draft : fleet.services) {
    draft.plan.metrics_fresh = metrics_hint(draft);
    draft.plan.slo_met = slo_hint(*draft.service, now_s);
    draft.plan.able_to_scale = scale_hint(draft, fleet);
    draft.plan.times_known = times_hint(draft, now_s);
  }
}

}  // namespace windlass::planner
