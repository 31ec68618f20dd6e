// Arbitration decides, over all services at once, who gets the GPUs when there are too few.
//
// The order: (1) every service's floor (minWorkers), by priority; among equals, floors that already run come first. (2) From
// the highest priority down: what a service already has and still wants. (3) Growth, one worker at a time, to the claim for
// which it is predicted to save the most SLO violations per GPU. (4) Last, claims that yield: the cluster refuses their new
// workers, or no node takes them.
//
// A running worker is never taken from one service for another of equal priority, however much more the other would gain. The
// loser wants it by the same prediction and would miss its objective immediately, while the winner gains only after a drain and
// a start; and two services in need would pass the same GPUs back and forth. Use a PriorityClass to put a service first.
//
// GPUs of draining workers count as available in the division, but nobody starts on them before they are free. So a running
// worker is taken only for a claim that those GPUs cannot meet; otherwise a worker that is still draining would cost another
// one at every plan.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace windlass::planner {

struct Claim {
  int priority = 0;
  std::string accelerator;
  int gpus_per_worker = 1;
  int floor = 0;  // part of `wanted`
  int keep = 0;   // part of `wanted` that the claim has already
  int wanted = 0;
  bool yields = false;  // what is above `keep` is served after all other claims
  // Requests per second that miss the objective with this many workers; decreasing. Without it, the claim with the most missing
  // workers is served first.
  std::function<double(int workers)> loss = {};
};

// Returns the workers granted to each claim, in order; never above `wanted`, and per accelerator never above `gpus`. Ties go to
// the claim listed first. A claim is evaluated about 128 times at most, and only on a class that is short: beyond 128 workers
// it grows by several at a time. O(claims log claims).
[[nodiscard]] std::vector<int> arbitrate(const std::vector<Claim>& claims, std::map<std::string, int> gpus);

// Returns how much of a grant may run today. arbitrate() also gives out GPUs that draining workers still hold; `free_gpus` are
// those that none holds. Workers a claim already has stay; the rest gets what fits into the free GPUs.
[[nodiscard]] std::vector<int> startable(const std::vector<Claim>& claims, std::vector<int> granted,
                                         std::map<std::string, int> free_gpus);

}  // namespace windlass::planner
