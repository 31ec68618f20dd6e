// Aladdin (Nie, Fonseca, Liu 2024): finds the worker with the highest throughput per GPU, then packs requests into as few such
// workers as meet every request's objectives.
//
// aladdin_plan():
// 1. For each accelerator, the tensor-parallel degree with the highest throughput per GPU (Eq. 6, by worker_config.h on the
//    problem's latency models). It does not depend on the rate.
// 2. The number of such workers at the problem's rate, by simulation with Aladdin's placement as dispatcher (Alg. 1,
//    planner/dispatch/best_fit.h); the paper counts the bins that its placement opens.
// 3. Among the accelerators, the best plan by the problem's goal.
// With PlanSetting::kSplitPhase, prefill and decode have separate workers (Section 5.1): prompts are packed by (c) only,
// decodes by (b) and (e), and each phase has its own best degree. There are no pipeline stages, as in the paper. If no degree
// preferred by Eq. 6 is feasible, the others are tried.
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
  dispatch::Placement placement;  // gamma, theta
  double heartbeat_s = 1;         // for the validity of Eq. 7
  SplitOptions search;            // for the simulation of deployments
};

// Result of Eq. 6 for one kind.
struct KindThroughput {
  int kind = 0;  // index in Problem::kinds
  planner::BatchChoice choice;
  double tokens_per_s_per_gpu = 0;  // 0: rejected
  std::string rejected_because;
};

// All kinds without pipeline stages: by accelerator, best first, ties by fewer GPUs; rejected ones last. `objective` as
// aladdin_objective() returns it.
[[nodiscard]] std::vector<KindThroughput> aladdin_kinds(const Problem& problem, const planner::Objective& objective);

// TTFT and TPOT, which Aladdin needs both: the joint objectives, otherwise those of the limits. Error kInvalidArgument if one
// is missing.
[[nodiscard]] Result<planner::Objective> aladdin_objective(const Problem& problem);

// Errors besides those of Strategy: theta outside (0, 1], gamma outside [0, 1], a heartbeat that is not above 0.
[[nodiscard]] Result<Offer> aladdin_plan(const Problem& problem, const Effort& effort, const AladdinOptions& options = {});

}  // namespace windlass::search
