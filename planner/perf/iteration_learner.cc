// See iteration_learner.h.
#include "planner/perf/iteration_learner.h"

#include <algorithm>

namespace windlass::planner {

void IterationLearner::set_base(const LinearCoefficients& base) {
  if (base_ && *base_ != base) rebase(estimate_, *base_, base);
  base_ = base;
}

bool IterationLearner::take(const std::string& worker, const WorkerCounters& now, const LinearCoefficients& base,
                            double context_tokens, double prompt_tokens) {
  set_base(base);
  bool any = false;
  for (const IterationObservation& observation : windows_[worker].take(now, context_tokens, prompt_tokens)) {
    const Learnt learnt = learn(estimate_, base, observation, learnt_at_s_ ? now.at_s - *learnt_at_s_ : 0);
    if (learnt == Learnt::kInvalid) continue;
    learnt_at_s_ = std::max(learnt_at_s_.value_or(now.at_s), now.at_s);
    any = any || learnt != Learnt::kOutlier;
  }
  return any;
}

void IterationLearner::keep(const std::set<std::string>& workers) {
  std::erase_if(windows_, [&](const auto& one) { return !workers.contains(one.first); });
}

}  // namespace windlass::planner
