// Decides which signals are present, fresh and finite.
#include "planner/policy/demand_view.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/policy/arrivals.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"

namespace windlass::planner {
namespace {

// What is wrong with a signal; empty if nothing.
std::string problem_of(const char* name, const std::optional<Reading>& reading, double now_s) {
  if (!reading) return fmt::format("{} is missing", name);
  if (!std::isfinite(reading->value) || reading->value < 0) return fmt::format("{} is {}", name, reading->value);
  if (is_usable(reading, now_s)) return {};
  return fmt::format("{} is {:.0f} s old; readings older than {:.0f} s are stale", name, now_s - reading->at_s, kSignalMaxAgeS);
}

double to_step(double tokens) { return std::ceil(std::pow(kLengthStep, std::round(std::log(tokens) / std::log(kLengthStep)))); }

}  // namespace

bool is_usable(const std::optional<Reading>& reading, double now_s) {
  if (!reading || !std::isfinite(reading->value) || reading->value < 0) return false;
  const double age_s = now_s - reading->at_s;
  return age_s <= kSignalMaxAgeS && age_s >= -1;  // NaN ages fail both
}

DemandView view_demand(const Service& service, const PolicyMemory& memory, double now_s) {
  const Demand& demand = service.demand;
  DemandView view;
  const double watched_s = memory.history_since_s ? now_s - *memory.history_since_s : 0;
  view.problem = problem_of("the arrival rate", demand.arrivals_per_s, now_s);
  const std::string queue_problem = problem_of("the queue length", demand.queued, now_s);
  if (!queue_problem.empty()) view.problem += (view.problem.empty() ? "" : "; ") + queue_problem;
  view.complete = view.problem.empty();
  if (is_usable(demand.arrivals_per_s, now_s)) view.arrivals_per_s = demand.arrivals_per_s->value;
  if (is_usable(demand.queued, now_s)) view.queued = demand.queued->value;
  if (std::isfinite(demand.arrivals_window_s) && demand.arrivals_window_s > 0)
    view.arrivals_window_s = demand.arrivals_window_s;
  // Right after a start, the reader has not yet counted for a whole window.
  view.arrivals_window_s = std::min(view.arrivals_window_s, std::max(1.0, watched_s));
  view.level_per_s = view.arrivals_per_s;
  view.level_window_s = view.arrivals_window_s;
  const std::optional<ArrivalsLevel> level = arrivals_level(memory, now_s);
  if (level && level->window_s > view.arrivals_window_s) {
    view.level_per_s = level->per_s;
    view.level_window_s = level->window_s;
  }
  view.forecast = forecast_arrivals(memory, service, now_s);
  const bool observed = level || is_usable(demand.arrivals_per_s, now_s);
  view.believed_per_s = observed ? std::max(view.level_per_s, view.arrivals_per_s) : service.workload.requests_per_s;
  view.burstiness = burstiness_at(memory, view.believed_per_s);

  view.lengths = Lengths{service.workload.input_tokens, service.workload.output_tokens};
  // The first requests to finish are few and short: they say little about the mean.
  const bool lengths_usable = watched_s >= kLengthsAfterS && is_usable(demand.input_tokens, now_s) &&
                              is_usable(demand.output_tokens, now_s) && demand.input_tokens->value >= 1 &&
                              demand.output_tokens->value >= 1;
  if (lengths_usable) {
    view.lengths = Lengths{to_step(demand.input_tokens->value), to_step(demand.output_tokens->value)};
    view.lengths_observed = true;
  }

  for (const Worker& worker : service.workers) {
    // Requests inside a prefill worker soon move to a decode worker.
    if (!serves(worker) || worker.role == dispatch::Role::kPrefill) continue;
    if (is_usable(worker.running, now_s) && is_usable(worker.waiting, now_s)) {
      view.in_workers += worker.running->value + worker.waiting->value;
    } else if (worker.ready_s && now_s - *worker.ready_s <= kReadingGraceS) {
      ++view.new_workers;
    } else {
      ++view.silent_workers;
    }
  }
  return view;
}

}  // namespace windlass::planner
