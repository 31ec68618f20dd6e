// Finds the number of workers by bisection; both conditions stay true when workers are added.
#include "planner/sizing/worker_count.h"

#include <algorithm>
#include <cmath>

#include "planner/queueing/erlang.h"

namespace windlass::planner {
namespace {

MmcQueue queue_of(const SizingInput& input, std::int64_t workers) {
  return MmcQueue{workers * input.slots_per_worker, input.arrival_rate_per_s, input.service_time_s};
}

}  // namespace

bool workers_suffice(const SizingInput& input, std::int64_t workers) {
  if (input.arrival_rate_per_s <= 0) return true;
  const MmcQueue queue = queue_of(input, workers);
  // Check the utilisation first: it is cheap and fails for most candidates, so Erlang C runs for few.
  if (queue.offered() > input.max_utilisation * static_cast<double>(queue.servers)) return false;
  return queue.wait_exceeds(std::max(0.0, input.wait_budget_s)) <= 1 - input.percentile / 100;
}

std::int64_t workers_needed(const SizingInput& input, std::int64_t limit) {
  if (input.arrival_rate_per_s <= 0 || limit <= 0) return 0;
  std::int64_t too_few = 0;
  // Double first, so that the cost depends on the answer and not on the limit.
  std::int64_t enough = std::min<std::int64_t>(1, limit);
  while (enough < limit && !workers_suffice(input, enough)) {
    too_few = enough;
    enough = std::min(limit, enough * 2);
  }
  while (enough - too_few > 1) {
    const std::int64_t middle = too_few + (enough - too_few) / 2;
    (workers_suffice(input, middle) ? enough : too_few) = middle;
  }
  return enough;
}

double predicted_wait_s(const SizingInput& input, std::int64_t workers) {
  return queue_of(input, workers).wait_quantile_s(input.percentile / 100);
}

}  // namespace windlass::planner
