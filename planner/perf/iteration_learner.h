// IterationLearner maintains the IterationEstimate of one kind of worker from the counters of all its workers. Used by the
// controller and by the simulator's copy of it.
//
// Pure: times are arguments. Single-threaded.
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
  // Discards everything learnt and starts from a fit that was measured more carefully than live workers allow.
  void begin(const IterationEstimate& estimate, const LinearCoefficients& base) {
    estimate_ = estimate;
    base_ = base;
  }

  // Changes the data sheet; everything learnt is kept.
  void set_base(const LinearCoefficients& base);

  // Processes the newest reading of a worker. `base`: as for set_base(). `context_tokens`, `prompt_tokens`: as for
  // IterationWindows. Returns whether anything was learnt.
  bool take(const std::string& worker, const WorkerCounters& now, const LinearCoefficients& base, double context_tokens,
            double prompt_tokens);

  // Processes measurements of an idle worker by outside requests, at time `at_s`.
  bool take(const std::vector<MeasuredIteration>& measured, const LinearCoefficients& base, double at_s);

  // Discards the windows of all other workers.
  void keep(const std::set<std::string>& workers);

  [[nodiscard]] const IterationEstimate& estimate() const { return estimate_; }
  // The data sheet that defines the units of the estimate. REQUIRES: one was given.
  [[nodiscard]] const LinearCoefficients& base() const { return *base_; }

 private:
  bool learn_all(const std::vector<IterationObservation>& observations, double at_s);

  IterationEstimate estimate_;
  std::optional<LinearCoefficients> base_;
  std::optional<double> learnt_at_s_;
  std::map<std::string, IterationWindows> windows_;  // by worker
};

}  // namespace windlass::planner
