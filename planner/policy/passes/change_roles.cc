// The "Roles" pass: which workers take the other role of a split service while they run (TetriInfer, Section 3.5: instance
// flip), and what Splitwise's mixed pool did. See passes.h.
#include <algorithm>

#include <fmt/format.h>

#include "planner/policy/passes/passes.h"
#include "planner/policy/trouble.h"

namespace windlass::planner {
namespace {

constexpr double kShownS = 600;  // how long the last change is among the reasons

// "1 prefill worker", "2 prefill workers".
std::string count_of(int workers, dispatch::Role role) {
  return fmt::format("{} {} worker{}", workers, dispatch::to_string(role), workers == 1 ? "" : "s");
}

// A role never loses workers that it needs: those that do not serve yet, or are in trouble, do not count as its own.
void change(Draft& draft, const Pool& from, const Pool& to) {
  const Service& service = *draft.service;
  int ready = 0, able = 0;
  for (const Worker& worker : service.workers) {
    if (worker.pool_id() != from.id() || !serves(worker)) continue;
    ++ready;
    able += worker.can_change_role ? 1 : 0;
  }
  const int existing = count_existing(service, to.id());
  const int workers = std::min({able, ready - from.workers, to.workers - existing});
  if (workers <= 0) return;
  std::string why = fmt::format("requests have {:.4g} tokens in and {:.4g} out, which need {} ({} serve) and {} (there are {})",
                                draft.view.lengths.input_tokens, draft.view.lengths.output_tokens,
                                count_of(from.workers, from.role), ready, count_of(to.workers, to.role), existing);
  draft.plan.role_changes.push_back({from.name, from.role, to.role, workers, std::move(why)});
}

void change(Draft& draft, double now_s) {
  std::optional<PastRoleChange>& past = draft.plan.memory.role_change;
  if (draft.applies()) {
    for (const Pool& from : draft.plan.pools) {
      for (const Pool& to : draft.plan.pools) {
        const bool phases = from.role != dispatch::Role::kUnified && to.role != dispatch::Role::kUnified;
        if (phases && from.name == to.name && from.spec == to.spec && from.role != to.role) change(draft, from, to);
      }
    }
  }
  for (const RoleChange& one : draft.plan.role_changes) {
    past = PastRoleChange{now_s, fmt::format("{} of {} become {}: {}", count_of(one.workers, one.from), one.pool,
                                             dispatch::to_string(one.to), one.why)};
  }
  if (past && now_s - past->at_s > kShownS) past.reset();
  if (past) draft.plan.reasons.push_back(Reason{"RoleChange", past->message, {{"secondsAgo", figure(now_s - past->at_s)}}});
}

// What gateways decided for each request; the plan changes nothing.
void explain_mixed_pool(Draft& draft) {
  const std::optional<Reading>& served = draft.service->demand.mixed_pool;
  if (!served) return;
  draft.plan.reasons.push_back(
      Reason{"MixedPool",
             fmt::format("the mixed pool served {:.0f} requests in the last {:.0f} s: decode workers computed prompts, or "
                         "prefill workers made tokens, because the workers of that role were full or did not serve",
                         served->value, Demand::kMixedPoolS),
             {{"requests", figure(served->value)}}});
}

}  // namespace

void change_roles(FleetDraft& fleet) {
  for (Draft& draft : fleet.services) {
    change(draft, fleet.snapshot->now_s);
    explain_mixed_pool(draft);
  }
}

}  // namespace windlass::planner
