// HexGen-2 (Jiang, Yan, Yuan, ICLR 2025): forms prefill and decode groups from heterogeneous GPUs on an uneven network, so that
// the largest flow of requests can pass through them.
//
// It partitions GPUs into groups and assigns phases to them (hexgen2_partition.h), finds the best parallel strategy of each
// group for its phase (hexgen2_strategies.h) and its pipeline's order (hexgen2_placement.h), routes requests by max-flow
// (hexgen2_flow.h), and improves the flow by exchanges between groups until none helps (hexgen2_refine.h).
// docs/algorithms/hexgen2.md lists differences from the paper. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "planner/strategies/core/stage_cost.h"
#include "planner/strategies/core/strategy.h"
#include "planner/strategies/hexgen2/hexgen2_placement.h"

namespace windlass::hetero {

using planner::Chain;
using planner::Hop;
using planner::PairShare;
using search::Offer;
using search::Problem;

enum class Hexgen2Search {
  kMaxFlowGuided,  // the paper's
  kRandomSwaps,    // its truncated variant
  kGenetic,        // HexGen's genetic algorithm instead of partition and refinement
  kExhaustive,     // every partition and phase: for up to a dozen GPUs
};
const char* to_string(Hexgen2Search search);  // "max-flow guided", "random swaps", "genetic", "exhaustive"

struct Hexgen2Options {
  Hexgen2Search search = Hexgen2Search::kMaxFlowGuided;
  int groups = 0;            // 0: computed from memory (groups_by_memory(), at least 2)
  bool fewer_groups = true;  // true: at most that number; false: exactly that number, as in the paper
  double memory_share = kMemoryShare;
  int chains = 2;         // independent searches; the best result counts
  int rounds = 0;         // RefineOptions::rounds; 0: computed from the number of groups
  std::int64_t idle = 0;  // for the baselines: consecutive tries without improvement before they stop; 0: 20,000
};

// A placement with the table that holds its strategies.
struct Scheduled {
  std::unique_ptr<StrategyTable> table;  // borrows the cluster and task
  Placement groups;
  std::int64_t flow = 0;        // in flow units
  std::int64_t first_flow = 0;  // of the first phase's placement; 0 if the search starts elsewhere
  int max_groups = 0;
  std::int64_t steps = 0;
  std::int64_t improvements = 0;
  bool stopped = false;
};

// The search alone. A flow of 0 means that nothing can serve. The same seed and step budget (Effort::max_iterations) give the
// same placement on any number of cores. Errors: kInvalidArgument for options or a number of groups that the GPUs do not allow;
// Cancelled.
[[nodiscard]] Result<Scheduled> hexgen2_schedule(const GpuCluster& cluster, const InferenceTask& task, std::uint64_t seed,
                                                 const search::Effort& effort, const Hexgen2Options& options = {});

// Errors as of Strategy; kNotFound if no two groups can serve, with what fits where and how much is missing.
[[nodiscard]] Result<Offer> hexgen2_plan(const Problem& problem, const search::Effort& effort, const Hexgen2Options& options);
[[nodiscard]] inline Result<Offer> hexgen2_plan(const Problem& problem, const search::Effort& effort) {
  return hexgen2_plan(problem, effort, {});
}

// Shared with hexgen_plan().

// Validates the cluster, the requests and their rate. The problem's worker kinds do not matter: a model that fits no node may
// fit a group.
[[nodiscard]] Result<void> validate_task(const Problem& problem);
// The problem's task: its model, the mean lengths of its requests, stages up to the size of the largest node, batches up to
// what its engine runs.
[[nodiscard]] Result<InferenceTask> task_of(const Problem& problem, double memory_share);
// One chain per group, with GPU numbers assigned in order on each node. Split by phase, or all unified.
[[nodiscard]] planner::Deployment deployment_of(const Problem& problem, const Placement& groups, bool unified);
// Fills in cost, power and number of the GPUs in the plan's chains; whether its capacity covers the problem's rate, and what is
// missing.
void complete(const Problem& problem, Offer& plan);
// Why nothing can serve if `copies` of the model are needed: layers that fit into each node's memory, and how much is missing.
[[nodiscard]] Error does_not_fit(const Problem& problem, const InferenceTask& task, int copies, const std::string& strategy);

}  // namespace windlass::hetero
