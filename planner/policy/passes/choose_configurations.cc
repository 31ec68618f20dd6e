// The "Configuration" pass: chooses the accelerator and the number of GPUs per worker for each service. See passes.h.
#include <algorithm>
#include <utility>

#include "planner/policy/choose_configuration.h"
#include "planner/policy/passes/passes.h"
#include "planner/policy/split.h"

namespace windlass::planner {
namespace {

// `held`: no decision is possible; return the counts of the first such plan. Otherwise a worker that replaces an outdated one
// would count as one more at the next plan, and be replaced itself.
std::vector<Configuration> pools_as_they_are(const ConfigurationInput& input, bool held) {
  std::vector<Configuration> pools;
  for (const Worker& worker : input.service->workers) {
    if (worker.state == WorkerState::kDraining) continue;
    auto same =
        std::find_if(pools.begin(), pools.end(), [&](const Configuration& c) { return c.pool.id() == worker.pool_id(); });
    if (same == pools.end()) {
      pools.push_back(describe_running(input, worker));
      same = pools.end() - 1;
    }
    ++same->pool.workers;
  }
  for (const PoolSlots& before : input.memory->slots) {
    const auto same =
        std::find_if(pools.begin(), pools.end(), [&](const Configuration& c) { return c.pool.id() == before.pool_id(); });
    if (held && before.held && same != pools.end()) same->pool.workers = *before.held;
  }
  return pools;
}

// Without a choice: what the spec asks for.
bool is_chained(const Service& service, const std::optional<Configuration>& chosen) {
  return chosen ? chosen->pool.spec.pipeline_stages > 1 : service.scaling.strategy == Family::kChained;
}

void choose(Draft& draft, const FleetDraft& fleet) {
  const Service& service = *draft.service;
  const ConfigurationInput input{&service,           fleet.snapshot,      &fleet.capacities,      &draft.memory,
                                 draft.view.lengths, draft.view.complete, draft.view.queued >= 1, draft.view.lengths_observed};
  ConfigurationChoice choice = choose_configuration(input);
  draft.chosen = std::move(choice.chosen);
  draft.sides = std::move(choice.sides);
  const bool split = draft.chosen ? draft.sides.split()
                                  : service.scaling.strategy == Family::kDisaggregated || runs_split(service, draft.memory);
  draft.plan.strategy = split                               ? Family::kDisaggregated
                        : is_chained(service, draft.chosen) ? Family::kChained
                                                            : Family::kReplicated;
  const bool changes = draft.chosen && (draft.memory.configuration != draft.chosen->pool.name ||
                                        draft.memory.prefill_share.has_value() != draft.sides.split());
  if (draft.chosen) {
    draft.memory.prefill_share.reset();
    draft.memory.sides.clear();
    for (const SidePool& side : draft.sides.pools) {
      const Pool& pool = side.configuration.pool;
      if (side.is_prefill() && !draft.memory.prefill_share) draft.memory.prefill_share = side.share;
      draft.memory.sides.push_back({pool.name, pool.role, side.share, side.lower});
    }
    if (draft.applies()) draft.memory.offer = std::move(choice.offer);
  }
  if (draft.memory.offer) draft.plan.dispatch = draft.memory.offer->dispatch;
  draft.plan.feasible = std::move(choice.feasible);
  for (Reason& reason : choice.reasons) draft.plan.reasons.push_back(std::move(reason));
  if (service.offers) draft.plan.strategies = service.offers->answers;
  draft.others = std::move(choice.others);
  draft.weighed = std::move(choice.weighed);
  draft.as_is = pools_as_they_are(input, draft.is_held());
  if (changes) {
    // A configuration already running when the controller started counts as chosen since then.
    const bool first = draft.memory.configuration.empty();
    draft.memory.configuration_since_s = first ? draft.memory.history_since_s : fleet.snapshot->now_s;
    draft.memory.configuration = draft.chosen->pool.name;
  }
}

}  // namespace

void choose_configurations(FleetDraft& fleet) {
  for (Draft& draft : fleet.services) choose(draft, fleet);
}

}  // namespace windlass::planner
