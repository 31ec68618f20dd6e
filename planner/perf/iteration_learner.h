// IterationLearner: one kind of worker's IterationEstimate, taught by the counters of all its workers. The controller and the
// simulator's copy of it both learn here.
//
// Pure: times come in as arguments. Single-threaded.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "planner/perf/iteration_estimate.h"
#include "planner/perf/iteration_windows.h"

namespace windlass::planner {

class IterationLearner {
 public:
  // Forgets what is known and goes on from there: a fit that was measured with all the care that live workers lack.
  void begin(const IterationEstimate& estimate, const LinearCoefficients& base) {
    estimate_ = estimate;
    base_ = base;
  }

  // The data sheet is this one now: what is known is kept.
  void set_base(const LinearCoefficients& base);

  // A worker's newest reading. `base`: as in set_base(). `context_tokens`, `prompt_tokens`: as IterationWindows has them.
  // Returns whether anything was learnt.
  bool take(const std::string& worker, const WorkerCounters& now, const LinearCoefficients& base, double context_tokens,
            double prompt_tokens);

  // What requests from outside measured of an idle worker, `at_s`.
  bool take(const std::vector<MeasuredIteration>& measured, const LinearCoefficients& base, double at_s);

  // Forgets the windows of other workers.
  void keep(const std::set<std::string>& workers);

  [[nodiscard]] const IterationEstimate& estimate() const { return estimate_; }
  // The data sheet that the estimate is in units of. REQUIRES: one was given.
  [[nodiscard]] const LinearCoefficients& base() const { return *base_; }

 private:
  bool learn_all(const std::vector<IterationObservation>& observations, double at_s);

  IterationEstimate estimate_;
  std::optional<LinearCoefficients> base_;
  std::optional<double> learnt_at_s_;
  std::map<std::string, IterationWindows> windows_;  // by worker
};

}  // namespace windlass::planner
