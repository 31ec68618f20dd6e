// The "Prediction" pass: predicts how each plan will behave, and what every other configuration would need. See passes.h.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/policy/passes/passes.h"
#include "planner/queueing/erlang.h"

namespace windlass::planner {
namespace {

// Behaviour of these pools at the believed demand. TTFT of split phases is a prompt's and then a first decode.
PredictedEnd behaviour(const std::vector<Configuration>& pools, const DemandView& view, const Slo& slo) {
  PredictedEnd all;
  double slots = 0, full_per_s = 0, prompt_s = 0;
  for (const Configuration& configuration : pools) {
    const Pool& pool = configuration.pool;
    if (pool.workers == 0) continue;
    if (pool.role == dispatch::Role::kPrefill) {
      prompt_s = std::max(prompt_s, configuration.times.ttft_s);
      continue;
    }
    slots += static_cast<double>(pool.workers) * pool.each.slots;
    full_per_s += pool.workers * pool.each.slots * pool.each.service_rate_per_s * configuration.capacity_ratio;
    all.requests_per_s += pool.workers * pool.each.requests_per_s;
    all.tpot_s = std::max(all.tpot_s, configuration.times.tpot_s);
    all.ttft_s = std::max(all.ttft_s, configuration.times.ttft_s);
  }
  all.ttft_s += prompt_s;
  if (full_per_s > 0) {
    // Pools of different speed are treated as one pool of the mean speed.
    const MmcQueue queue{static_cast<std::int64_t>(slots), view.believed_per_s, slots / full_per_s};
    all.ttft_s += queue.wait_quantile_s(slo.percentile / 100);
  } else if (view.believed_per_s > 0 || view.queued > 0) {
    all.ttft_s = std::numeric_limits<double>::infinity();
  }
  return all;
}

// The pools if their times are at an end of their interval. What a worker delivers changes as its closed forms do.
std::vector<Configuration> at_end(const Draft& draft, const Snapshot& snapshot, End end) {
  std::vector<Configuration> pools = draft.effective;
  for (Configuration& configuration : pools) {
    const AcceleratorState* state = find_accelerator(snapshot, configuration.pool.spec.accelerator);
    if (configuration.pool.workers == 0 || state == nullptr || !draft.service->shape) continue;
    const double before = requests_per_s(configuration), each = configuration.pool.each.requests_per_s;
    configuration = at_end(*draft.service, state->spec, draft.view.lengths, configuration,
                           scale_of(end, configuration.errors.tpot), scale_of(end, configuration.errors.ttft));
    if (before > 0) configuration.pool.each.requests_per_s = each * requests_per_s(configuration) / before;
  }
  return pools;
}

Predicted predict(const Draft& draft, const Snapshot& snapshot) {
  const Slo& slo = draft.service->slo;
  Predicted predicted;
  Provenance from = Provenance::kMeasured;
  bool any = false;
  for (const Configuration& configuration : draft.effective) {
    const Pool& pool = configuration.pool;
    predicted.gpus += gpus_of(configuration);
    predicted.cost_per_hour += pool.workers * configuration.price_per_hour;
    if (pool.workers == 0) continue;
    any = true;
    from = std::max(from, configuration.errors.from);
  }
  const PredictedEnd expected = behaviour(draft.effective, draft.view, slo);
  const PredictedEnd fast = behaviour(at_end(draft, snapshot, End::kShort), draft.view, slo);
  const PredictedEnd slow = behaviour(at_end(draft, snapshot, End::kLong), draft.view, slo);
  predicted.ttft_s = expected.ttft_s;
  predicted.tpot_s = expected.tpot_s;
  predicted.requests_per_s = expected.requests_per_s;
  predicted.low = {fast.ttft_s, fast.tpot_s, slow.requests_per_s};
  predicted.high = {slow.ttft_s, slow.tpot_s, fast.requests_per_s};
  predicted.from = any ? from : Provenance::kDataSheet;
  if (expected.requests_per_s > 0) predicted.utilisation = draft.view.believed_per_s / expected.requests_per_s;
  return predicted;
}

// Every compared configuration with the workers it would need for the planned demand; feasible ones first, cheapest first.
std::vector<Considered> considered(const Draft& draft) {
  std::vector<Considered> out;
  double chosen_cost = 0;
  for (const Weighed& weighed : draft.weighed) {
    const Configuration& configuration = weighed.configuration;
    Considered entry{configuration.pool.spec, 0, 0, configuration.times.tpot_s, configuration.times.ttft_s, weighed.rejected};
    if (configuration.pool.each.slots > 0) {
      entry.workers = std::max(1, workers_for(*draft.service, configuration, draft.target.demand_per_s, draft.view.burstiness));
      entry.cost_per_hour = entry.workers * configuration.price_per_hour;
      if (entry.rejected.empty() && !weighed.outbid) chosen_cost = entry.cost_per_hour;
    }
    out.push_back(std::move(entry));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!draft.weighed[i].outbid) continue;
    out[i].rejected =
        out[i].cost_per_hour < chosen_cost
            ? fmt::format("{:.4g} per hour instead of {:.4g} does not justify a change", out[i].cost_per_hour, chosen_cost)
            : fmt::format("costs {:.4g} per hour; the chosen configuration costs {:.4g}", out[i].cost_per_hour, chosen_cost);
  }
  std::stable_sort(out.begin(), out.end(), [](const Considered& a, const Considered& b) {
    if ((a.workers > 0) != (b.workers > 0)) return a.workers > 0;
    return a.cost_per_hour < b.cost_per_hour;
  });
  return out;
}

// What being sure would take where no such worker was measured: the workers that are needed if their times are as long as one
// in ten may be.
void say_what_is_unsure(Draft& draft, const Snapshot& snapshot) {
  if (!draft.chosen || !(draft.target.demand_per_s > 0)) return;
  const Service& service = *draft.service;
  const Configuration& chosen = *draft.chosen;
  const WorkerSpec& spec = chosen.pool.spec;
  const WorkerEstimate* known = find_estimate(service.estimates, spec.accelerator, spec.split());
  const AcceleratorState* state = find_accelerator(snapshot, spec.accelerator);
  if (state == nullptr || !service.shape || (known != nullptr && known->split() == spec.split())) return;
  const double longer = one_sided(chosen.errors.tpot);
  const Configuration slow = at_end(service, state->spec, draft.view.lengths, chosen, longer, longer);
  const int sure = workers_for(service, slow, draft.target.demand_per_s, draft.view.burstiness);
  if (sure <= draft.granted) return;
  const double more = (sure - draft.granted) * chosen.price_per_hour;
  draft.plan.reasons.push_back(
      Reason{"UnsureTimes",
             fmt::format("times of {} come from {}; with a chance of one in ten they are at least {:.3g} times as long, and {} "
                         "workers would be needed instead of {} ({:.4g} more per hour); a few minutes of traffic or a "
                         "PerformanceProfile would tell",
                         text_of(spec), known == nullptr ? "its data sheet" : "workers with another number of GPUs", longer,
                         sure, draft.granted, more),
             {{"factor", figure(longer)}, {"workers", std::to_string(sure)}, {"morePerHour", figure(more)}}});
}

}  // namespace

void predict_plans(FleetDraft& fleet) {
  for (Draft& draft : fleet.services) {
    draft.plan.considered = considered(draft);
    draft.plan.predicted = predict(draft, *fleet.snapshot);
    say_what_is_unsure(draft, *fleet.snapshot);
  }
}

}  // namespace windlass::planner
