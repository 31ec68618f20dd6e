// Arbitration decides, over all services at once, who gets the GPUs when there are too few.
//
// The order:
// - First, the floor (minWorkers) of every service, by priority. Among equals, floors that already run come first.
// - From the highest priority down: the workers that a service already has and still wants.
// - Growth, one worker at a time, for the service where one more worker is predicted to avoid the most SLO violations per GPU.
// - Last, services whose new workers cannot start, because the cluster refuses them or no node takes them.
//
// A running worker is never taken from one service for another of equal priority, even if the other would gain more. The first
// service would miss its objective immediately, while the second gains only after a drain and a start. Two services in need
// would also pass the same GPUs back and forth. Use a PriorityClass to put a service first.
//
// GPUs of draining workers count as available when GPUs are divided, but nobody starts on them before they are free. A running
// worker is taken only if those GPUs are not enough. Otherwise every plan would take one more worker while the first one still
// drains.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "planner/catalog/gpu_split.h"

namespace windlass::planner {

struct Claim {
  int priority = 0;
  std::string accelerator;
  GpuSplit split = 1;  // of each worker's GPUs
  int floor = 0;       // part of `wanted`
  int keep = 0;        // part of `wanted` that the claim has already
  int wanted = 0;
  bool yields = false;  // what is above `keep` is served after all other claims
  // Requests per second that miss the objective with this many workers; decreasing. Without it, the claim with the most missing
  // workers is served first.
  std::function<double(int workers)> loss = {};

  [[nodiscard]] int gpus_per_worker() const { return split.gpus(); }
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
