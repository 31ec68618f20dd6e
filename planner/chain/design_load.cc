// Computes the design load of CG-BP; see design_load.h.
#include "planner/chain/design_load.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "planner/chain/cg_bp.h"
#include "planner/chain/gbp_cr.h"
#include "planner/chain/routes.h"

namespace windlass::chain {
namespace {

bool places_all_blocks(const Instance& instance, int load) {
  long blocks = 0;
  for (const Server& server : instance.servers) {
    blocks += blocks_for_capacity(instance, server.memory_gb, load);
    if (blocks >= instance.blocks) return true;
  }
  return false;
}

}  // namespace

int max_design_load(const Instance& instance) {
  if (!places_all_blocks(instance, 1)) return 0;
  int feasible = 1;  // the number of blocks never rises with the load, even with rounding
  int infeasible = std::numeric_limits<int>::max();
  if (places_all_blocks(instance, infeasible)) return infeasible;
  while (infeasible - feasible > 1) {
    const int middle = feasible + (infeasible - feasible) / 2;
    (places_all_blocks(instance, middle) ? feasible : infeasible) = middle;
  }
  return feasible;
}

double sufficient_design_load(const Instance& instance) {
  assert(!instance.servers.empty());
  double memory_gb = 0;
  for (const Server& server : instance.servers) memory_gb += server.memory_gb;
  const double shares = instance.blocks + static_cast<double>(instance.servers.size());
  return (memory_gb / shares - instance.block_gb) / instance.cache_gb;
}

int design_load(const Instance& instance, double mean_arrivals, double deviation) {
  const int most = max_design_load(instance);
  if (most == 0) return 0;
  const double wanted = std::ceil(mean_arrivals + deviation);
  return wanted >= most ? most : std::max(1, static_cast<int>(wanted));
}

DesignLoad poisson_design_load(const Instance& instance, double arrival_rate_per_s, double times_per_request) {
  DesignLoad result{std::min(1, max_design_load(instance)), 0};
  while (result.requests > 0) {
    const auto route = shortest_route(instance, cg_bp(instance, result.requests).placement);
    assert(route);
    result.session_s = route->time_s * times_per_request;
    const double mean = arrival_rate_per_s * result.session_s;
    const int next = design_load(instance, mean, std::sqrt(mean));
    if (next <= result.requests) break;
    result.requests = next;
  }
  return result;
}

}  // namespace windlass::chain
