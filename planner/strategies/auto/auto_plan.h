// auto: the strategies and the whole space of unified and split deployments compete in the simulator; the cheapest that meets
// the objectives with a stated confidence is kept.
//
// Screened in closed form (auto_candidates.h), simulated in the order of what the goal counts, each bounded by the best so far.
// Anytime: after the first few trials there is a plan that held in one; with more time a cheaper one, and then what the other
// strategies propose, each tried by the same rules. With joint objectives a plan is confident when the lower end of the 95 %
// Wilson interval of the requests inside them reaches the attainment that is asked, over more requests where it is close; with
// limits alone, when they hold on three seeds. Neighbouring requests share a queue, so that the interval is nominal.
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
  // Asked in this order for deployments beside the space's own; their errors are told as reasons. Borrowed.
  const std::vector<NamedStrategy>* proposers = nullptr;
  bool split = true;                     // prefill and decode workers, too
  std::int64_t most_requests = 100'000;  // of a trial that has to be sure
  // Tried first: what runs, where the problem is asked again.
  std::optional<Deployment> incumbent;
};

[[nodiscard]] Result<Offer> auto_plan(const Problem& problem, const AutoOptions& options, const Effort& effort);

// What a later question is compared with.
struct AutoMemory {
  Offer plan;
  LengthMoments lengths;      // of the requests it was made for
  double requests_per_s = 0;  // the same
  double closed_worth = 0;    // what the closed forms expected the cheapest to cost
  double steady_per_s = 0;    // and the plan's deployment to serve
};
[[nodiscard]] AutoMemory remember(const Problem& problem, Offer plan);

struct AutoReplan {
  AutoMemory memory;
  bool kept = false;   // the last plan stands, in closed form; what is predicted is the last simulation's
  std::string reason;  // why it was kept, or not
};

// The last plan where it still holds and nothing is expected to be cheaper by more than `tolerance` (relative); else
// auto_plan() with it as incumbent. It holds while the rate is inside its simulated capacity, corrected by what the closed
// forms say of lengths that changed, less a margin. Costs some 100 microseconds where it is kept. REQUIRES: the problem has the
// kinds and engine that `last` was made with (in their order); another model, or other prices, are another problem.
[[nodiscard]] Result<AutoReplan> auto_replan(const Problem& problem, const AutoMemory& last, const AutoOptions& options,
                                             const Effort& effort, double tolerance = 0.1);

}  // namespace windlass::search
