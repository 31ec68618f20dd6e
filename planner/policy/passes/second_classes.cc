// The "SecondClass" pass: gives a service workers of a second class while its own class is short of GPUs. See passes.h.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/policy/passes/claims.h"
#include "planner/policy/passes/passes.h"

namespace windlass::planner {
namespace {

// How many more workers of a second class the service may have: what is missing, within its own limits.
int more_of(const Draft& draft, const Configuration& other) {
  const Service& service = *draft.service;
  const double worth = worth_of(draft, other), missing = missing_workers(draft, draft.promised);
  if (!(worth > 0) || missing <= 1e-6) return 0;
  double more = std::min(1e6, std::ceil(missing / worth - 1e-9));
  double workers = draft.granted, cost = draft.granted * draft.chosen->price_per_hour, gpus = 0;
  for (const Configuration& pool : draft.retiring) {
    workers += pool.pool.workers;
    cost += pool.pool.workers * pool.price_per_hour;
    if (pool.pool.spec.accelerator == other.pool.spec.accelerator) gpus += gpus_of(pool);
  }
  if (service.scaling.max_workers) more = std::min(more, *service.scaling.max_workers - workers);
  if (other.max_gpus) more = std::min(more, std::floor((*other.max_gpus - gpus) / std::max(1, other.pool.spec.gpus())));
  if (service.scaling.max_cost_per_hour && other.price_per_hour > 0)
    more = std::min(more, std::floor((*service.scaling.max_cost_per_hour - cost) / other.price_per_hour + 1e-9));
  return static_cast<int>(std::max(0.0, more));
}

// One round: gives each service workers of its second class number `rank`.
void take_rank(const std::vector<Draft*>& drafts, std::size_t rank, FleetDraft& fleet) {
  std::vector<Claim> claims;
  std::vector<Draft*> claimants;
  for (Draft* draft : drafts) {
    const bool full = draft->promised < draft->target.allowed || draft->target.limited_by == "MaxGpus";
    if (rank >= draft->others.size() || !full || !draft->view.complete || yields(*draft, fleet.snapshot->now_s)) continue;
    Configuration pool = draft->others[rank];
    pool.pool.workers = 0;
    const int wanted = more_of(*draft, pool);
    if (wanted == 0) continue;
    claims.push_back(second_claim_of(*draft, pool, wanted));
    claimants.push_back(draft);
  }
  std::vector<int> grants = arbitrate(claims, fleet.free_gpus);
  for (std::size_t i = 0; i < claims.size(); ++i) {
    if (const auto nodes = fleet.free_on_nodes.find(claims[i].accelerator); nodes != fleet.free_on_nodes.end())
      grants[i] = place_workers(nodes->second, claims[i].split, grants[i]);
    if (grants[i] == 0) continue;
    Draft& draft = *claimants[i];
    fleet.free_gpus[claims[i].accelerator] -= grants[i] * claims[i].gpus_per_worker();
    Configuration pool = draft.others[rank];
    pool.pool.workers = grants[i];
    const auto same = std::find_if(draft.retiring.begin(), draft.retiring.end(),
                                   [&](const Configuration& of) { return of.pool.id() == pool.pool.id(); });
    if (same == draft.retiring.end()) {
      draft.retiring.push_back(std::move(pool));
    } else {
      same->pool.workers += grants[i];
    }
  }
}

void explain_second_classes(Draft& draft) {
  for (const Configuration& pool : draft.retiring) {
    if (second_class(draft, pool.pool.id()) == nullptr ||
        draft.granted >= std::max(draft.target.allowed, draft.target.on_any_class))
      continue;
    draft.plan.reasons.push_back(
        Reason{"SecondClass",
               fmt::format("{} has room for {} of {} workers; {} workers of pool {} serve as well",
                           draft.chosen->pool.spec.accelerator, draft.granted,
                           std::max(draft.target.allowed, draft.target.on_any_class), pool.pool.workers, pool.pool.name),
               {{"pool", pool.pool.name}, {"workers", std::to_string(pool.pool.workers)}}});
  }
}

}  // namespace

void take_second_classes(FleetDraft& fleet) {
  std::vector<Draft*> drafts;
  std::size_t most = 0;
  for (Draft& draft : fleet.services) {
    if (!draft.applies()) continue;
    drafts.push_back(&draft);
    most = std::max(most, draft.others.size());
  }
  for (std::size_t rank = 0; rank < most; ++rank) take_rank(drafts, rank, fleet);
  for (Draft* draft : drafts) explain_second_classes(*draft);
}

}  // namespace windlass::planner
