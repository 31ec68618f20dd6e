// Splitwise (Patel et al., ISCA 2024): machines for prompts, machines for tokens, how many of each and of which kind.
//
// Section IV-D: a cluster design names the kind of machine of each phase; the numbers of both come from a search by simulation
// for the goal, under the objectives. Its designs by kinds of machines here: the same for both phases (AA, HH), the faster one
// for prompts and a slower one for tokens (HA), and the same for both with the token machines' power capped (HHcap). Machines
// serve as Section IV-A and B have it: fewest pending tokens, prompts batched up to 2,048 tokens, decode machines by the memory
// promised, a mixed pool where queues grow too long. docs/algorithms/splitwise.md says where this differs from the paper. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "planner/strategies/core/split_search.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

struct SplitwiseOptions {
  SplitOptions search;
  std::vector<int> machines;  // indices in Problem::kinds; empty: of each accelerator the largest kind, a whole machine
  // The fastest machine's token machines may be capped (Problem::power_cap); considered where power counts: by the goal, or by
  // a limit on it.
  bool may_cap = true;
  std::int64_t mixed_pool_threshold_tokens = 8192;
  int max_batch_tokens = 2048;  // of prompts
};

// Table VI: P50, P90 and P99 of the slowdowns of TTFT, TBT and E2E against the request alone on Problem::slowdown_reference.
[[nodiscard]] std::vector<Limit> splitwise_objectives();

// Machines that prompts and tokens share (the paper's baselines): mixed continuous batching, as in the mixed pool.
[[nodiscard]] SplitDesign baseline_design(const Problem& problem, int kind, const SplitwiseOptions& options = {});

// "AA", "HH", "HA" by the two kinds; `capped`: the token machines.
[[nodiscard]] SplitDesign splitwise_design(const Problem& problem, int prompt_kind, int token_kind, bool capped,
                                           const SplitwiseOptions& options = {});

[[nodiscard]] Result<Offer> splitwise_plan(const Problem& problem, const Effort& effort, const SplitwiseOptions& options);
[[nodiscard]] inline Result<Offer> splitwise_plan(const Problem& problem, const Effort& effort) {
  return splitwise_plan(problem, effort, {});
}

}  // namespace windlass::search
