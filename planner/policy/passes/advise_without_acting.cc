// The "Advice" pass: computes what the plan would be for services in mode Recommend or Paused. See passes.h.
#include <map>
#include <string>
#include <vector>

#include "planner/policy/passes/claims.h"
#include "planner/policy/passes/passes.h"

namespace windlass::planner {

void advise_without_acting(FleetDraft& fleet) {
  const double now_s = fleet.snapshot->now_s;
  for (Draft& draft : fleet.services) {
    if (draft.applies() || !draft.chosen) continue;
    std::map<std::string, int> left = fleet.free_gpus;
    for (const Configuration& pool : draft.as_is) left[pool.pool.spec.accelerator] += gpus_of(pool);
    std::vector<Claim> own = {claim_of(draft, now_s)};
    for (std::size_t i = 0; i < draft.sides.pools.size(); ++i) own.push_back(side_claim_of(draft, i, now_s));
    const std::vector<int> would = arbitrate(own, left);
    draft.granted = would[0];
    draft.sides_granted.assign(would.begin() + 1, would.end());
  }
}

}  // namespace windlass::planner
