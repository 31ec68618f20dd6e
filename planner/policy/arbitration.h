// Arbitration: who gets the GPUs when there are too few for all.
//
// First every service its floor (minWorkers), by priority; then, from the highest priority down: what a service has already and
// still wants, before any growth, so that equals don't take workers from each other; then growth, one worker at a time in turn.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace windlass::planner {

struct Claim {
  int priority = 0;
  std::string accelerator;
  int gpus_per_worker = 1;
  int floor = 0;  // of wanted
  int keep = 0;   // of wanted: it has these already
  int wanted = 0;
};

// Workers granted to each claim, in order; never above `wanted`, and per accelerator never above `free_gpus`. Ties go to the
// claim listed first.
[[nodiscard]] std::vector<int> arbitrate(const std::vector<Claim>& claims, std::map<std::string, int> free_gpus);

}  // namespace windlass::planner
