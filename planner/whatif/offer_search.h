// search_offers asks the strategies what a ModelService should run, and lets them compete in the simulator (auto_plan.h).
//
// Replicated services hear the strategies of whole workers, Disaggregated ones those of split phases, Auto both. Answers are
// for the spec's assumed lengths. The policy scales them with demand, keeps them within maxCostPerHour and knows who else
// needs GPUs, so the search assumes any budget and plenty of GPUs of each class, within the service's maxGPUs. A rate that
// would need dozens of workers is searched at a lower one: the rate of a worker hardly depends on their number beyond that.
// Pure.
#pragma once

#include <vector>

#include "planner/base/result.h"
#include "planner/policy/snapshot.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

// What is asked for one service. Equal questions of different services have the same answer.
struct OfferQuestion {
  planner::Service service;                        // its spec, with measurements of its workers and of transfers to them
  std::vector<planner::AcceleratorState> classes;  // those with GPUs
  int round = 0;                                   // 0: a quick search; 1: a longer one, after all services have an answer
  std::uint64_t ticket = 0;                        // of OfferBook

  bool operator==(const OfferQuestion&) const = default;
};

// Simulated iterations that each strategy may take in a round of questions (auto_plan.h).
[[nodiscard]] std::int64_t max_iterations(int round);

// `effort.max_iterations` is set by the question. The only error is Cancelled: if no deployment is possible, the answer says
// why.
[[nodiscard]] Result<planner::Offers> search_offers(const OfferQuestion& question, Effort effort);

}  // namespace windlass::search
