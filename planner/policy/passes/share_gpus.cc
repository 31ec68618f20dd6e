// The "Arbitration" pass: divides the GPUs among the services. See passes.h.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/policy/passes/claims.h"
#include "planner/policy/passes/fit_on_nodes.h"
#include "planner/policy/passes/passes.h"

namespace windlass::planner {
namespace {

constexpr int kRounds = 3;  // of arbitration, in which the two phases of split services are matched, and claims fitted on nodes

// The claims of a service: for its chosen pool, and for each side pool.
struct UnitClaims {
  std::size_t chosen = 0;
  std::vector<std::size_t> sides;
};

// All claims: first one per service for its chosen pool, then for side pools, then for pools on second classes.
struct Claims {
  std::vector<Claim> all;
  std::vector<Draft*> claimants;  // services behind the first claims
  std::vector<UnitClaims> units;  // of services with side pools
  std::size_t first_second = 0;
  std::vector<Configuration*> second_pools;  // pools behind the claims from there on
};

Claims claims_of(FleetDraft& fleet) {
  const double now_s = fleet.snapshot->now_s;
  Claims claims;
  for (Draft& draft : fleet.services) {
    if (!draft.applies()) continue;
    claims.all.push_back(claim_of(draft, now_s));
    claims.claimants.push_back(&draft);
  }
  for (std::size_t i = 0; i < claims.claimants.size(); ++i) {
    const Draft& draft = *claims.claimants[i];
    if (draft.sides.empty()) continue;
    UnitClaims unit{i, {}};
    for (std::size_t side = 0; side < draft.sides.pools.size(); ++side) {
      unit.sides.push_back(claims.all.size());
      claims.all.push_back(side_claim_of(draft, side, now_s));
    }
    claims.units.push_back(std::move(unit));
  }
  claims.first_second = claims.all.size();
  for (Draft* draft : claims.claimants) {
    for (Configuration& pool : draft->retiring) {
      if (second_class(*draft, pool.pool.id()) == nullptr) continue;
      claims.all.push_back(second_claim_of(*draft, pool, pool.pool.workers));
      claims.second_pools.push_back(&pool);
    }
  }
  return claims;
}

// Lowers a claim to what it can use. Running workers stay, unless all are useless. Returns whether anything changed.
bool shrink(Claim& claim, int useful) {
  const int wanted = useful == 0 ? 0 : std::max(useful, claim.keep);
  if (wanted >= claim.wanted) return false;
  claim.wanted = wanted;
  claim.keep = std::min(claim.keep, wanted);
  claim.floor = std::min(claim.floor, wanted);
  return true;
}

// Lowers each phase of a split service to what it can use with the other phase's grant: no prefill workers without any decode
// worker. Returns whether anything changed.
bool shrink_units(const std::vector<int>& promised, Claims& claims) {
  bool changed = false;
  for (const UnitClaims& unit : claims.units) {
    const Draft& draft = *claims.claimants[unit.chosen];
    if (!draft.sides.split()) continue;
    // What each phase can serve, in units of one chosen worker and its share of the side pools.
    double answers = draft.chosen->load_share * promised[unit.chosen], prompts = 0;
    for (std::size_t i = 0; i < unit.sides.size(); ++i) {
      const SidePool& side = draft.sides.pools[i];
      (side.is_prefill() ? prompts : answers) += side.configuration.load_share * promised[unit.sides[i]] / side.share;
    }
    // No prefill workers at all: the decode workers compute prompts too.
    const int units = static_cast<int>(std::clamp(std::floor(prompts + 1e-9), 1.0, 1e6));
    if (prompts > 0) changed |= shrink(claims.all[unit.chosen], units);
    for (std::size_t i = 0; i < unit.sides.size(); ++i) {
      const SidePool& side = draft.sides.pools[i];
      if (side.is_prefill()) {
        changed |= shrink(claims.all[unit.sides[i]], side.workers(static_cast<int>(std::ceil(answers - 1e-9))));
      } else if (prompts > 0) {
        changed |= shrink(claims.all[unit.sides[i]], side.workers(units));
      }
    }
  }
  return changed;
}

// Lowers claims to the workers that find a node. Returns whether anything changed.
bool shrink_to_nodes(const FleetDraft& fleet, const std::vector<int>& promised, Claims& claims) {
  bool changed = false;
  const NodeFit fit = fit_on_nodes(fleet, claims.all, promised, true);
  for (std::size_t i = 0; i < claims.all.size(); ++i) changed |= shrink(claims.all[i], fit.most[i]);
  return changed;
}

// How much of the promises may run today, on nodes that have room now. Keeps what these nodes have left.
std::vector<int> start_on_nodes(const Claims& claims, const std::vector<int>& promised, FleetDraft& fleet) {
  std::vector<int> limits = promised, grants;
  for (int round = 0; round < kRounds; ++round) {
    grants = startable(claims.all, limits, fleet.free_gpus);
    NodeFit fit = fit_on_nodes(fleet, claims.all, grants, false);
    fleet.free_on_nodes = std::move(fit.free);
    bool fits = true;
    for (std::size_t i = 0; i < grants.size(); ++i) {
      fits = fits && grants[i] <= fit.most[i];
      limits[i] = std::min(limits[i], fit.most[i]);
      grants[i] = std::min(grants[i], fit.most[i]);
    }
    if (fits) break;
  }
  return grants;
}

}  // namespace

void share_gpus(FleetDraft& fleet) {
  Claims claims = claims_of(fleet);
  const std::map<std::string, int> all_gpus = free_or_coming(fleet);
  std::vector<int> promised = arbitrate(claims.all, all_gpus);
  // One phase is useless without the other, and GPUs on several nodes make no worker: release them to other services.
  for (int round = 0; round < kRounds; ++round) {
    const bool on_nodes = shrink_to_nodes(fleet, promised, claims);
    if (!shrink_units(promised, claims) && !on_nodes) break;
    promised = arbitrate(claims.all, all_gpus);
  }
  const std::vector<int> grants = start_on_nodes(claims, promised, fleet);
  for (std::size_t i = 0; i < claims.all.size(); ++i) {
    if (i < claims.claimants.size()) {
      claims.claimants[i]->granted = grants[i];
      claims.claimants[i]->promised = promised[i];
    } else if (i >= claims.first_second) {
      claims.second_pools[i - claims.first_second]->pool.workers = grants[i];
    }
    // Reserved for this claim even before they are free.
    fleet.free_gpus[claims.all[i].accelerator] -= promised[i] * claims.all[i].gpus_per_worker();
  }
  for (const UnitClaims& unit : claims.units) {
    for (std::size_t i = 0; i < unit.sides.size(); ++i) claims.claimants[unit.chosen]->sides_granted[i] = grants[unit.sides[i]];
  }
  for (Draft* draft : claims.claimants)
    std::erase_if(draft->retiring, [](const Configuration& pool) { return pool.pool.workers == 0; });
}

}  // namespace windlass::planner
