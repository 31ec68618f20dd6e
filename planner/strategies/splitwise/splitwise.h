// Splitwise (Patel et al., ISCA 2024) uses separate machines for prompts and for tokens. This file finds how many machines of
// each, and of which kind.
//
// Section IV-D: a cluster design states the kind of machine of each phase; a search by simulation finds both numbers for the
// goal, under the objectives. Designs here: the same kind for both phases (AA, HH), the faster one for prompts and a slower one
// for tokens (HA), and the same for both with a power cap on the token machines (HHcap). Machines serve as in Section IV-A and
// B: fewest pending tokens, prompts batched up to 2,048 tokens, decode machines by the memory promised, a mixed pool when
// queues grow too long. docs/algorithms/splitwise.md lists differences from the paper. Pure.
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
  std::vector<int> machines;  // indices in Problem::kinds; empty: the largest kind of each accelerator, a whole machine
  // The token machines of the fastest kind may be capped (Problem::power_cap). Considered if power matters: by the goal, or by
  // a limit on it.
  bool may_cap = true;
  std::int64_t mixed_pool_threshold_tokens = 8192;
  int max_batch_tokens = 2048;  // of prompts
};

// Table VI: P50, P90 and P99 of the slowdowns of TTFT, TBT and E2E against the request alone on Problem::slowdown_reference.
[[nodiscard]] std::vector<Limit> splitwise_objectives();

// Machines shared by prompts and tokens (the paper's baselines): mixed continuous batching, as in the mixed pool.
[[nodiscard]] SplitDesign baseline_design(const Problem& problem, int kind, const SplitwiseOptions& options = {});

// "AA", "HH", "HA" by the two kinds; `capped` applies to the token machines.
[[nodiscard]] SplitDesign splitwise_design(const Problem& problem, int prompt_kind, int token_kind, bool capped,
                                           const SplitwiseOptions& options = {});

[[nodiscard]] Result<Offer> splitwise_plan(const Problem& problem, const Effort& effort, const SplitwiseOptions& options);
[[nodiscard]] inline Result<Offer> splitwise_plan(const Problem& problem, const Effort& effort) {
  return splitwise_plan(problem, effort, {});
}

}  // namespace windlass::search
