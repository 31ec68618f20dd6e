// Calibrator: what is known of how long iterations take, by configuration: from PerformanceProfiles, from what workers measured
// themselves, and from live workers' pages. How is planner/perf/iteration_windows.h and iteration_estimate.h.
//
// Pure: times come in as arguments. Single-threaded.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/api/performance_profile.h"
#include "controller/reconcile/worker_signals.h"
#include "planner/perf/iteration_learner.h"
#include "planner/sizing/worker_config.h"

namespace windlass::controller {

struct Configuration {
  std::string name_space;
  std::string model;   // as a PerformanceProfile names it
  std::string engine;  // spec.engine.type: another engine, other times
  std::string accelerator;
  int gpus_per_worker = 0;

  auto operator<=>(const Configuration&) const = default;
};

// An engine's page as the planner reads it, whichever engine it is.
[[nodiscard]] planner::WorkerCounters counters_of(const WorkerPage& page);

struct Calibration {
  planner::IterationLearner learner;
  std::pair<std::string, std::int64_t> profile;  // uid and generation of what it began with; "": none
};

class Calibrator {
 public:
  // A PerformanceProfile speaks of this configuration: the first time, and when it has changed, what it measured, as its status
  // has corrected it, is where the estimate begins.
  void adopt(const Configuration& configuration, const api::PerformanceProfile& profile,
             const planner::IterationModel& of_profile, const planner::LinearCoefficients& base);

  // `base`: the data sheet's. Returns whether anything was learnt.
  bool learn(const Configuration& configuration, const std::string& worker, const WorkerPage& page,
             const planner::Lengths& lengths, const planner::LinearCoefficients& base);

  // What was measured of a worker of it while it was idle, `at_s`.
  bool learn(const Configuration& configuration, const std::vector<planner::MeasuredIteration>& measured,
             const planner::LinearCoefficients& base, double at_s);

  [[nodiscard]] const Calibration* find(const Configuration& configuration) const;
  [[nodiscard]] const std::map<Configuration, Calibration>& all() const { return known_; }
  // nullopt: nothing is known yet.
  [[nodiscard]] std::optional<planner::WorkerEstimate> estimate(const Configuration& configuration) const;

  // Forgets other workers' windows, and configurations that nobody asks for.
  void keep(const std::set<std::string>& workers, const std::set<Configuration>& configurations);

 private:
  std::map<Configuration, Calibration> known_;
};

// What is believed of each phase, at a load that was seen, over what something else says.
struct PhaseScales {
  double prefill = 1;
  double decode = 1;
};
[[nodiscard]] PhaseScales scales_over(const planner::LatencyModel& other, const Calibration& known);

// For the status of the profile whose fit this is.
[[nodiscard]] api::CalibrationStatus to_status(const Calibration& known, const planner::IterationModel& of_profile,
                                               const std::string& now_rfc3339);

}  // namespace windlass::controller
