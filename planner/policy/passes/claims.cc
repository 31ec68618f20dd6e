// See claims.h.
#include "planner/policy/passes/claims.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"
#include "planner/queueing/erlang.h"

namespace windlass::planner {
namespace {

// Requests per second that would miss timeToFirstToken with this many workers: those above capacity, and the share of the
// others that waits too long.
double missed_per_s(const Draft& draft, int workers) {
  constexpr double kBusiest = 0.95;  // above it the queue grows too long for the formula to be accurate
  const Configuration& chosen = *draft.chosen;
  const double demand_per_s = draft.target.demand_per_s + draft.view.queued / kBacklogDrainS;
  const auto slots = static_cast<std::int64_t>(workers) * chosen.pool.each.slots;
  const double service_s = effective_service_s(chosen);
  const double served_per_s = std::min(demand_per_s, kBusiest * static_cast<double>(slots) / std::max(1e-9, service_s));
  if (slots == 0 || served_per_s <= 0) return demand_per_s;
  const MmcQueue queue{slots, served_per_s, service_s};
  const double budget_s = std::max(0.0, draft.service->slo.ttft_s - chosen.times.ttft_s);
  return demand_per_s - served_per_s + served_per_s * queue.wait_exceeds(budget_s);
}

}  // namespace

bool yields(const Draft& draft, double now_s) {
  const Service& service = *draft.service;
  if (is_refused(service, now_s)) return true;
  return std::any_of(service.workers.begin(), service.workers.end(),
                     [&](const Worker& w) { return draft.is_planned(w.pool_id()) && is_stranded(w, now_s); });
}

Claim claim_of(const Draft& draft, double now_s) {
  const Pool& pool = draft.chosen->pool;
  const int existing = count_existing(*draft.service, pool.id());
  return Claim{draft.service->priority,
               pool.spec.accelerator,
               pool.spec.split(),
               draft.target.floor,
               std::min(existing, draft.target.allowed),
               draft.target.allowed,
               yields(draft, now_s),
               [&draft](int workers) { return missed_per_s(draft, workers); }};
}

Claim side_claim_of(const Draft& draft, std::size_t index, double now_s) {
  const SidePool& side = draft.sides.pools[index];
  const Pool& pool = side.configuration.pool;
  const int wanted = draft.sides_wanted[index];
  const int existing = count_existing(*draft.service, pool.id());
  return Claim{draft.service->priority, pool.spec.accelerator, pool.spec.split(),
               // The part of minWorkers beyond the chosen pool: the second worker of a pair has a floor too.
               std::clamp(draft.service->scaling.min_workers - draft.target.floor, 0, wanted), std::min(existing, wanted),
               wanted, yields(draft, now_s), [&draft, &side](int workers) {
                 return missed_per_s(draft, static_cast<int>(std::min(1e6, std::floor(workers / side.share + 1e-9))));
               }};
}

Claim second_claim_of(const Draft& draft, const Configuration& pool, int wanted) {
  Claim claim;
  claim.priority = draft.service->priority;
  claim.accelerator = pool.pool.spec.accelerator;
  claim.split = pool.pool.spec.split();
  claim.keep = std::min(pool.pool.workers, wanted);
  claim.wanted = wanted;
  return claim;
}

}  // namespace windlass::planner
