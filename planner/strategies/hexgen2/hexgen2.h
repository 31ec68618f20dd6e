// HexGen-2 (Jiang, Yan, Yuan, ICLR 2025): prefill and decode groups over unlike GPUs and an uneven network, for the largest
// flow of requests.
//
// GPUs are partitioned into groups and the groups into phases (hexgen2_partition.h), each group gets the best parallel strategy
// for its phase (hexgen2_strategies.h) and its pipeline's order (hexgen2_placement.h), requests flow as a max-flow has it
// (hexgen2_flow.h), and exchanges between groups that the flow asks for improve it until none does (hexgen2_refine.h).
// docs/algorithms/hexgen2.md says where this differs from the paper. Pure.
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
  kGenetic,        // HexGen's genetic algorithm in the place of partition and refinement
  kExhaustive,     // every partition and phase: for a dozen GPUs
};
const char* to_string(Hexgen2Search search);  // "max-flow guided", "random swaps", "genetic", "exhaustive"

struct Hexgen2Options {
  Hexgen2Search search = Hexgen2Search::kMaxFlowGuided;
  int groups = 0;            // 0: by memory (groups_by_memory(), at least 2)
  bool fewer_groups = true;  // that number is a limit; false: exactly that number, as in the paper
  double memory_share = kMemoryShare;
  int chains = 2;         // independent searches, the best of them counts
  int rounds = 0;         // RefineOptions::rounds; 0: by the number of groups
  std::int64_t idle = 0;  // of the baselines: tries in a row that may find nothing better; 0: 20,000
};

// A placement with what its strategies are kept in.
struct Scheduled {
  std::unique_ptr<StrategyTable> table;  // borrows cluster and task
  Placement groups;
  std::int64_t flow = 0;        // units
  std::int64_t first_flow = 0;  // of the first phase's placement; 0 where the search begins elsewhere
  int most_groups = 0;
  std::int64_t steps = 0;
  std::int64_t improvements = 0;
  bool stopped = false;
};

// The search alone. A flow of 0: nothing serves. The same seed and step budget (Effort::most_iterations) give the same
// placement on any number of cores. Errors: kInvalidArgument for options or a number of groups that the GPUs do not allow;
// Cancelled.
[[nodiscard]] Result<Scheduled> hexgen2_schedule(const GpuCluster& cluster, const InferenceTask& task, std::uint64_t seed,
                                                 const search::Effort& effort, const Hexgen2Options& options = {});

// Errors as of a Strategy; kNotFound when no two groups can serve, with what fits where and how much is missing.
[[nodiscard]] Result<Offer> hexgen2_plan(const Problem& problem, const search::Effort& effort, const Hexgen2Options& options);
[[nodiscard]] inline Result<Offer> hexgen2_plan(const Problem& problem, const search::Effort& effort) {
  return hexgen2_plan(problem, effort, {});
}

// Parts that hexgen_plan() makes its plan of too.

// The cluster, the requests and their rate. The problem's worker kinds do not matter here: a model that fits no node may well
// fit a group.
[[nodiscard]] Result<void> validate_task(const Problem& problem);
// The task of a problem: its model, the mean lengths of its requests, stages as large as the largest node.
[[nodiscard]] Result<InferenceTask> task_of(const Problem& problem, double memory_share);
// A chain for each group, with GPUs' numbers: each node's in their order. By phase, or all unified.
[[nodiscard]] planner::Deployment deployment_of(const Problem& problem, const Placement& groups, bool unified);
// Cost, power and number of the GPUs in the plan's chains; whether its capacity is the problem's rate, and what is missing.
void complete(const Problem& problem, Offer& plan);
// Why nothing serves, when `copies` of the model are needed: layers that each node's memory holds, and how much is missing.
[[nodiscard]] Error does_not_fit(const Problem& problem, const InferenceTask& task, int copies, const std::string& strategy);

}  // namespace windlass::hetero
