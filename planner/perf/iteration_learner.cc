// Updates iteration estimates from worker counters; see iteration_learner.h.
#include "planner/perf/iteration_learner.h"

#include <algorithm>

namespace windlass::planner {
namespace {

constexpr double kProbedNoise = 0.05;  // of times measured over the network, including other work of the server

}  // namespace

void IterationLearner::set_base(const LinearCoefficients& base) {
  if (base_ && *base_ != base) rebase(estimate_, *base_, base);
  base_ = base;
}

bool IterationLearner::take(const std::string& worker, const WorkerCounters& now, const LinearCoefficients& base,
                            double context_tokens, double prompt_tokens) {
  set_base(base);
  return learn_all(windows_[worker].take(now, context_tokens, prompt_tokens), now.at_s);
}

bool IterationLearner::take(const std::vector<MeasuredIteration>& measured, const LinearCoefficients& base, double at_s) {
  set_base(base);
  return learn_all(observations_of(measured, kProbedNoise), at_s);
}

bool IterationLearner::learn_all(const std::vector<IterationObservation>& observations, double at_s) {
  bool any = false;
  for (const IterationObservation& observation : observations) {
    const Learnt learnt = learn(estimate_, *base_, observation, learnt_at_s_ ? at_s - *learnt_at_s_ : 0);
    if (learnt == Learnt::kInvalid) continue;
    if (learnt == Learnt::kChange) estimate_.changed_at_s = at_s;
    learnt_at_s_ = std::max(learnt_at_s_.value_or(at_s), at_s);
    any = any || learnt != Learnt::kOutlier;
  }
  return any;
}

void IterationLearner::keep(const std::set<std::string>& workers) {
  std::erase_if(windows_, [&](const auto& one) { return !workers.contains(one.first); });
}

}  // namespace windlass::planner
