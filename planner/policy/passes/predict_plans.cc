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

// Predicts the behaviour of these pools at the believed demand.
Predicted predict(const std::vector<Configuration>& pools, const DemandView& view, const Slo& slo) {
  Predicted predicted;
  double slots = 0, full_per_s = 0;
  for (const Configuration& configuration : pools) {
    const Pool& pool = configuration.pool;
    predicted.gpus += gpus_of(configuration);
    predicted.cost_per_hour += pool.workers * configuration.price_per_hour;
    if (pool.workers == 0 || pool.role == dispatch::Role::kPrefill) continue;
    slots += static_cast<double>(pool.workers) * pool.each.slots;
    full_per_s += pool.workers * pool.each.slots * pool.each.service_rate_per_s * configuration.capacity_ratio;
    predicted.requests_per_s += pool.workers * pool.each.requests_per_s;
    predicted.tpot_s = std::max(predicted.tpot_s, configuration.times.tpot_s);
    predicted.ttft_s = std::max(predicted.ttft_s, configuration.times.ttft_s);
  }
  if (predicted.requests_per_s > 0) predicted.utilisation = view.believed_per_s / predicted.requests_per_s;
  if (full_per_s > 0) {
    // Pools of different speed are treated as one pool of the mean speed.
    const MmcQueue queue{static_cast<std::int64_t>(slots), view.believed_per_s, slots / full_per_s};
    predicted.ttft_s += queue.wait_quantile_s(slo.percentile / 100);
  } else if (view.believed_per_s > 0 || view.queued > 0) {
    predicted.ttft_s = std::numeric_limits<double>::infinity();
  }
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

}  // namespace

void predict_plans(FleetDraft& fleet) {
  for (Draft& draft : fleet.services) {
    draft.plan.considered = considered(draft);
    draft.plan.predicted = predict(draft.effective, draft.view, draft.service->slo);
  }
}

}  // namespace windlass::planner
