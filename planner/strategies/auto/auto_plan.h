// auto: lets all strategies and the whole space of unified and split deployments compete in the simulator, and returns the
// cheapest that meets the objectives with a stated confidence.
//
// Closed forms screen the candidates of its own search (auto_candidates.h). The simulator tries them in the order of their
// cost, power or GPUs (by the goal), each only as far as it can still beat the best so far.
//
// The search may stop at any time. First, the cheapest guesses are tried, for an answer at once. Then, with slices of 50,000,
// 200,000, 800,000, ... simulated iterations, each strategy that has not finished is asked again with the slice as its step
// budget, and its own search continues up to the slice. What they find is confirmed after each slice (auto_answers.h).
//
// Effort::max_iterations is the budget of each strategy and of the own search, not their sum: the first slice that is at least
// as large is the last one. What is simulated until then does not depend on the budget, so that with the order of
// auto_answers.h
// - the answer of a larger budget is never worse, and
// - for each strategy that needs fewer iterations than the budget, the answer is as good as its plan, or auto's trials show
//   that its plan does not hold or, if the answer is confirmed, does not hold with confidence.
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
  // Strategies that propose further deployments, cheap ones first; their errors become reasons. Borrowed. The own search comes
  // after the first kAutoCheap of them.
  const std::vector<NamedStrategy>* proposers = nullptr;
  bool unified = true;                  // consider workers of whole requests
  bool split = true;                    // consider separate prefill and decode workers
  std::int64_t max_requests = 100'000;  // per trial that establishes confidence
  // Tried first: the running deployment, when planning again.
  std::optional<Deployment> incumbent;
};

inline constexpr std::size_t kAutoCheap = 2;
inline constexpr std::int64_t kAutoFirstSlice = 50'000;  // simulated iterations
inline constexpr std::int64_t kAutoSliceGrowth = 4;

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
