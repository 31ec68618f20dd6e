// Replicated placement: evaluates one candidate per accelerator and sorts them by preference.
#include "planner/sizing/replicated.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/sizing/worker_count.h"

namespace windlass::planner {
namespace {

// No useful plan has more workers for one service, and the limit keeps the arithmetic cheap.
constexpr std::int64_t kWorkerLimit = 100'000;

void keep_smallest(double value, const Rejected& rejected, double& smallest, std::string& on) {
  if (value <= 0 || (smallest > 0 && value >= smallest)) return;
  smallest = value;
  on = text_of(rejected.spec);
}

WorkerSearchInput search_of(const ReplicatedInput& input, const AcceleratorOption& option) {
  return {input.shape,
          option.spec,
          input.objective,
          input.lengths,
          option.max_gpus_per_worker,
          input.max_context_tokens,
          input.engine,
          input.estimates,
          input.chained,
          input.max_gpus_per_worker};
}

Candidate make_candidate(const ReplicatedInput& input, const AcceleratorOption& option, const WorkerConfig& config) {
  SizingInput sizing;
  sizing.arrival_rate_per_s = input.requests_per_s;
  sizing.service_time_s = config.times.service_s;
  sizing.slots_per_worker = config.batch;
  sizing.wait_budget_s = input.objective.ttft_s - config.times.ttft_s;
  sizing.percentile = input.objective.percentile;
  sizing.max_utilisation = kMaxUtilisation;

  Candidate candidate;
  candidate.config = config;
  candidate.workers = std::max<std::int64_t>(1, workers_needed(sizing, kWorkerLimit));
  candidate.cost_per_hour = static_cast<double>(candidate.workers) * config.spec.gpus() * option.spec.price_per_hour;
  candidate.capacity_per_s = static_cast<double>(candidate.workers) * config.requests_per_s();
  candidate.has_room = option.available_gpus >= config.spec.gpus();
  return candidate;
}

}  // namespace

std::optional<Candidate> replicated_candidate(const ReplicatedInput& input, const GpuSplit& split) {
  const AcceleratorOption& option = input.accelerators.front();
  if (split.stages > 1) {
    const auto config = input.chained ? chain_config(search_of(input, option), split) : std::nullopt;
    return config ? std::optional(make_candidate(input, option, *config)) : std::nullopt;
  }
  for (const WorkerConfig& config : search_worker_config(search_of(input, option)).feasible) {
    if (config.spec.split() == split) return make_candidate(input, option, config);
  }
  return std::nullopt;
}

ReplicatedResult place_replicated(const ReplicatedInput& input) {
  ReplicatedResult result;
  for (const AcceleratorOption& option : input.accelerators) {
    WorkerSearch search = search_worker_config(search_of(input, option));
    for (Rejected& rejected : search.rejected) {
      keep_smallest(rejected.smallest_tpot_s, rejected, result.smallest_tpot_s, result.smallest_tpot_on);
      keep_smallest(rejected.smallest_ttft_s, rejected, result.smallest_ttft_s, result.smallest_ttft_on);
      result.rejected.push_back(std::move(rejected));
    }
    if (!search.best) continue;
    result.candidates.push_back(make_candidate(input, option, *search.best));
  }
  const bool rate_known = input.requests_per_s > 0;
  auto order = [&](const Candidate& c) {
    // If the rate is unknown, compare the cost per request instead of per worker.
    const double cost = rate_known ? c.cost_per_hour : c.cost_per_hour / c.capacity_per_s;
    const double gpus = static_cast<double>(c.workers) * c.config.spec.gpus();
    return std::make_tuple(!c.has_room, cost, rate_known ? gpus : gpus / c.capacity_per_s);
  };
  std::stable_sort(result.candidates.begin(), result.candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return order(a) < order(b); });
  return result;
}

}  // namespace windlass::planner
