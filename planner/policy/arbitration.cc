// The passes of the arbitration.
#include "planner/policy/arbitration.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace windlass::planner {

std::vector<int> arbitrate(const std::vector<Claim>& claims, std::map<std::string, int> free_gpus) {
  std::vector<int> granted(claims.size(), 0);
  // Raises a claim's grant towards `to` as far as GPUs go; says whether it grew.
  auto raise = [&](std::size_t i, int to) {
    const Claim& claim = claims[i];
    int& free = free_gpus[claim.accelerator];
    const int affordable = claim.gpus_per_worker > 0 ? std::max(0, free) / claim.gpus_per_worker : 0;
    const int more = std::clamp(std::min(to, claim.wanted) - granted[i], 0, affordable);
    granted[i] += more;
    free -= more * claim.gpus_per_worker;
    return more > 0;
  };

  std::vector<std::size_t> order(claims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return claims[a].priority > claims[b].priority; });

  for (std::size_t i : order) raise(i, claims[i].floor);
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && claims[order[end]].priority == claims[order[begin]].priority) ++end;
    for (std::size_t k = begin; k < end; ++k) raise(order[k], claims[order[k]].keep);
    for (bool grew = true; grew;) {
      grew = false;
      for (std::size_t k = begin; k < end; ++k) grew = raise(order[k], granted[order[k]] + 1) || grew;
    }
    begin = end;
  }
  return granted;
}

}  // namespace windlass::planner
