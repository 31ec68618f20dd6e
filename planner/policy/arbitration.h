// Arbitration: who gets the GPUs when there are too few for all. One decision over all services.
//
// First every service its floor (minWorkers), by priority; of equals, what runs of their floors before what does not. Then,
// from the highest priority down: what a service has already and still wants, before any growth; then growth, each time for the
// worker that saves most violations of the objective per GPU, by the prediction. What a claim yields (the cluster refuses its
// new workers, or no node takes them) comes after everybody.
//
// A worker that runs is never taken from one equal for another, however much more the other would gain: the loser wants it by
// the same prediction, would fall below its objective for sure and at once, while the winner gains only after a drain and a
// start; and two services in need would hand the same GPUs to and fro. Who must come first says so by a PriorityClass.
//
// GPUs of workers that drain count for who has what, and nobody starts on them before they are free: a worker that runs is
// taken only for a claim that what is coming free cannot meet, or one that is on its way out would cost another each time.
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
  int floor = 0;  // of wanted
  int keep = 0;   // of wanted: it has these already
  int wanted = 0;
  bool yields = false;  // with what is above `keep`
  // Requests per second beyond the objective with so many workers; falls with them. Without it the one with most workers
  // missing is served first.
  std::function<double(int workers)> loss = {};
};

// Workers granted to each claim, in order; never above `wanted`, and per accelerator never above `gpus`. Ties go to the claim
// listed first. However much a claim wants, it is weighed some 128 times at most, and only on a class that is short: beyond 128
// workers it grows by several at a time. O(claims log claims).
[[nodiscard]] std::vector<int> arbitrate(const std::vector<Claim>& claims, std::map<std::string, int> gpus);

// Of what arbitrate() granted with the GPUs that are coming free among its own: what may be there today. What a claim has
// already stays, and the rest is as much as the GPUs have room for that no worker on its way out holds (free_gpus).
[[nodiscard]] std::vector<int> startable(const std::vector<Claim>& claims, std::vector<int> granted,
                                         std::map<std::string, int> free_gpus);

}  // namespace windlass::planner
