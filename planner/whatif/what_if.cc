// Bisection over the arrival rate; each step runs the policy's own sizing.
#include "planner/whatif/what_if.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "planner/policy/arrivals.h"
#include "planner/policy/capacity.h"
#include "planner/policy/choose_configuration.h"
#include "planner/policy/demand_view.h"
#include "planner/policy/target.h"

namespace windlass::planner {
namespace {

constexpr double kMaxTimes = 16;
constexpr double kLeastRatePerS = 0.01;  // lower end of the search for a service without requests
constexpr double kPrecision = 0.01;

}  // namespace

std::optional<WhatIf> what_if(const Snapshot& snapshot, std::size_t index) {
  const Service& service = snapshot.services[index];
  if (!is_usable(service.demand.arrivals_per_s, snapshot.now_s)) return std::nullopt;
  const double rate_per_s = service.demand.arrivals_per_s->value;
  const PolicyMemory memory = advance_memory(service, snapshot.now_s);
  const DemandView view = view_demand(service, memory, snapshot.now_s);
  const CapacityByClass capacities = capacity_by_class(snapshot);
  const ConfigurationChoice choice = choose_configuration({&service, &snapshot, &capacities, &memory, view.lengths});
  if (!choice.chosen) return std::nullopt;
  const auto wanted_at = [&](double other_per_s) {
    const int needed = workers_for(service, *choice.chosen, other_per_s, burstiness_at(memory, other_per_s));
    const int least = service.scaling.min_workers;
    return choice.sides.total(std::max({needed, other_per_s > 0 ? 1 : 0, choice.sides.chosen_from(least)}));
  };

  WhatIf out;
  out.workers = wanted_at(rate_per_s);
  // Narrows [unchanged, changed] until both are within the precision of each other; returns the changed end.
  const auto narrow = [&](double unchanged, double changed, const std::function<bool(int)>& differs) {
    while (std::abs(changed - unchanged) > kPrecision * std::max(changed, unchanged) &&
           std::max(changed, unchanged) > kLeastRatePerS) {
      const double middle = (unchanged + changed) / 2;
      (differs(wanted_at(middle)) ? changed : unchanged) = middle;
    }
    return changed;
  };
  const double max_per_s = std::max(rate_per_s, kLeastRatePerS) * kMaxTimes;
  const auto is_more = [&](int workers) { return workers > out.workers; };
  if (is_more(wanted_at(max_per_s))) {
    out.more_at_per_s = narrow(rate_per_s, max_per_s, is_more);
    out.more_workers = wanted_at(*out.more_at_per_s);
  }
  const auto is_fewer = [&](int workers) { return workers < out.workers; };
  if (rate_per_s > 0 && is_fewer(wanted_at(0))) {
    out.fewer_at_per_s = narrow(rate_per_s, 0, is_fewer);
    out.fewer_workers = wanted_at(*out.fewer_at_per_s);
  }
  return out;
}

}  // namespace windlass::planner
