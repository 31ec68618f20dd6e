// auto: lets all strategies and the whole space of unified and split deployments compete in the simulator, and returns the
// cheapest that meets the objectives with a stated confidence.
//
// Closed forms screen the candidates (auto_candidates.h). The simulator then tries them in the order of their cost, power or
// GPUs (by the goal), each only as far as it can still beat the best so far. The search may stop at any time: after a few
// trials it has a plan that passed one trial. More time gives a cheaper plan, and then compares the proposals of the other
// strategies by the same rules.
//
// With joint objectives, a plan is confident if the lower end of the 95 % Wilson interval of the share of requests that meet
// them reaches the required attainment. Close cases use more requests. With limits only, they must hold on three seeds.
// Neighbouring requests share a queue, so the interval is nominal.
//
// One seed and step budget give the same plan on any number of cores. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/strategies/core/steady_rate.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

struct AutoOptions {
  // Strategies that propose further deployments, in this order; their errors become reasons. Borrowed.
  const std::vector<NamedStrategy>* proposers = nullptr;
  bool unified = true;                  // consider workers of whole requests
  bool split = true;                    // consider separate prefill and decode workers
  std::int64_t max_requests = 100'000;  // per trial that establishes confidence
  // Tried first: the running deployment, when planning again.
  std::optional<Deployment> incumbent;
};

[[nodiscard]] Result<Offer> auto_plan(const Problem& problem, const AutoOptions& options, const Effort& effort);

// State against which a later problem is compared.
struct AutoMemory {
  Offer plan;
  LengthMoments lengths;      // lengths of the requests it was made for
  double requests_per_s = 0;  // their rate
  double closed_worth = 0;    // cost of the cheapest deployment by the closed forms
  double steady_per_s = 0;    // rate of the plan's deployment by the closed forms
};
[[nodiscard]] AutoMemory remember(const Problem& problem, Offer plan);

struct AutoReplan {
  AutoMemory memory;
  bool kept = false;   // the last plan stays, by closed forms; the prediction is the last simulation's
  std::string reason;  // why it stays, or not
};

// Keeps the last plan if it is still feasible and nothing is expected to be cheaper by more than `tolerance` (relative);
// otherwise runs auto_plan() with it as incumbent. It is feasible while the rate is within its simulated capacity, corrected by
// the closed forms for changed lengths, less a margin. Takes some 100 microseconds if the plan stays. REQUIRES: the problem has
// the same kinds, in order, and engine as the one `last` was made for; another model or other prices make another problem.
[[nodiscard]] Result<AutoReplan> auto_replan(const Problem& problem, const AutoMemory& last, const AutoOptions& options,
                                             const Effort& effort, double tolerance = 0.1);

}  // namespace windlass::search
