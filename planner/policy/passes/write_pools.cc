// The "Pools" pass: writes the pools of the plan, and the memory for the next plan. See passes.h.
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "planner/policy/passes/passes.h"

namespace windlass::planner {
namespace {

// The chosen pools with their granted workers, and the retiring pools.
std::vector<Configuration> planned_pools(const Draft& draft) {
  std::vector<Configuration> planned = draft.retiring;
  if (!draft.chosen) return planned;
  planned.insert(planned.begin(), *draft.chosen);
  planned.front().pool.workers = draft.granted;
  for (std::size_t i = 0; i < draft.sides.pools.size(); ++i) {
    const auto at = planned.insert(planned.begin() + 1 + static_cast<std::ptrdiff_t>(i), draft.sides.pools[i].configuration);
    at->pool.workers = draft.sides_granted[i];
  }
  return planned;
}

// What one of the pool's workers delivers. Prefill workers deliver prompts: their rate is that of the phase.
void set_yield(const Service& service, Configuration& configuration) {
  if (!service.shape || !(configuration.times.service_s > 0)) return;
  const int workers = std::max(1, configuration.pool.workers);
  configuration.pool.each.requests_per_s =
      configuration.pool.role == dispatch::Role::kPrefill
          ? requests_per_s(configuration)
          : capacity_of(service, configuration, workers) * configuration.load_share / workers;
}

void write(Draft& draft, double now_s) {
  const Service& service = *draft.service;
  ServicePlan& plan = draft.plan;
  const std::vector<Configuration> planned = planned_pools(draft);
  if (draft.chosen) plan.reasons.insert(plan.reasons.end(), draft.target.reasons.begin(), draft.target.reasons.end());
  draft.effective = draft.applies() ? planned : draft.as_is;
  for (Configuration& pool : draft.effective) set_yield(service, pool);
  for (const Configuration& pool : draft.effective) plan.pools.push_back(pool.pool);
  if (draft.applies()) {
    plan.memory = draft.target.memory;
  } else {
    plan.memory = draft.chosen ? draft.target.memory : remember(draft.memory, service.scaling, now_s, current_workers(service));
    if (draft.chosen) {
      for (const Configuration& pool : planned) plan.recommended_pools.push_back(pool.pool);
      plan.reasons.push_back(Reason{to_string(service.scaling.mode),
                                    fmt::format("worker counts are left unchanged; the plan would be {} workers of pool {}",
                                                draft.granted, title(draft.chosen->pool.id())),
                                    {}});
    } else if (!draft.as_is.empty()) {
      plan.reasons.push_back(Reason{"HeldAsIs", "no plan is possible; running workers stay", {}});
    }
  }
  // A held service still wants the workers that an earlier plan asked for, also those that nobody has seen yet.
  if (!draft.applies() && !draft.is_held()) plan.memory.desired.reset();
  plan.memory.slots.clear();
  for (const Configuration& pool : draft.effective) {
    const auto& given = draft.memory.slots;
    const auto same = std::find_if(given.begin(), given.end(), [&](const PoolSlots& before) {
      return before.pool_id() == pool.pool.id() && before.slots == pool.pool.each.slots;
    });
    plan.memory.slots.push_back({pool.pool.name, pool.pool.each.slots,
                                 draft.is_held() ? std::optional(pool.pool.workers) : std::nullopt,
                                 same != given.end() ? same->changed_s : now_s, pool.pool.role});
  }
}

}  // namespace

void write_pools(FleetDraft& fleet) {
  for (Draft& draft : fleet.services) write(draft, fleet.snapshot->now_s);
}

}  // namespace windlass::planner
