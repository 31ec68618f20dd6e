// Aladdin (Nie, Fonseca, Liu 2024): the worker that serves most per GPU, requests packed into as few of them as keep
// everybody's objectives.
//
// aladdin_plan():
// 1. of each accelerator the tensor parallel degree with the highest throughput per GPU (Eq. 6, by worker_config.h on the
//    problem's latency models). It does not depend on the rate;
// 2. the number of such workers at the problem's rate, by simulation with Aladdin's placement dispatching (Alg. 1,
//    planner/dispatch/best_fit.h), where the paper counts the bins that its placement opens;
// 3. among the accelerators the plan that is least by the problem's goal.
// With PlanSetting::kSplitPhase prefill and decode have workers of their own (Section 5.1): prompts are packed by (c) alone,
// decodes by (b) and (e), and each phase has the degree that serves it best.
// Pipeline stages are left out, as in the paper. Where no degree that Eq. 6 prefers holds, the others are tried.
#pragma once

#include <string>
#include <vector>

#include "planner/sizing/worker_config.h"
#include "planner/strategies/core/split_search.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

enum class PlanSetting { kContinuousBatching, kSplitPhase };

struct AladdinOptions {
  PlanSetting setting = PlanSetting::kContinuousBatching;
  dispatch::Placement placement;  // gamma, theta, and whether outputs are predicted from history
  double heartbeat_s = 1;         // for Eq. 7's validity
  SplitOptions search;            // trials of a deployment
};

// What Eq. 6 says of one kind.
struct KindThroughput {
  int kind = 0;  // index in Problem::kinds
  planner::BatchChoice choice;
  double tokens_per_s_per_gpu = 0;  // 0: rejected
  std::string rejected_because;
};

// All kinds without pipeline stages: per accelerator the best first, of equals the one with fewer GPUs; rejected ones last.
// `objective` as aladdin_objective() gives it.
[[nodiscard]] std::vector<KindThroughput> aladdin_kinds(const Problem& problem, const planner::Objective& objective);

// TTFT and TPOT as Aladdin needs both: joint objectives, else those of the limits. Error kInvalidArgument: one of them is
// missing.
[[nodiscard]] Result<planner::Objective> aladdin_objective(const Problem& problem);

// Errors beside those of Strategy: theta that is not above 0 and at most 1, gamma that is not in 0 to 1, a heartbeat that is
// not above 0.
[[nodiscard]] Result<Offer> aladdin_plan(const Problem& problem, const Effort& effort, const AladdinOptions& options = {});

}  // namespace windlass::search
