// Calibrator estimates how long an iteration takes in each configuration (model, engine, GPU class and number of GPUs). It
// learns from PerformanceProfiles, from measurements of idle workers and from the metrics pages of live workers. The methods
// are in planner/perf/iteration_windows.h and iteration_estimate.h.
//
// Pure: times are arguments. Single-threaded.
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
#include "planner/perf/profile_estimate.h"
#include "planner/sizing/worker_config.h"

namespace windlass::controller {

struct Configuration {
  std::string name_space;
  std::string model;   // as in a PerformanceProfile
  std::string engine;  // spec.engine.type: engines have different times
  std::string accelerator;
  int gpus_per_worker = 0;
  int stages = 1;  // planner::GpuSplit

  auto operator<=>(const Configuration&) const = default;
};

// An engine's metrics page in the planner's form, the same for all engines. A worker of one phase counts what it computes: no
// first token that another worker has sent.
[[nodiscard]] planner::WorkerCounters counters_of(const WorkerPage& page, dispatch::Role role = dispatch::Role::kUnified);

struct Calibration {
  planner::IterationLearner learner;
  std::pair<std::string, std::int64_t> profile;     // uid and generation of the profile it started from; "": none
  planner::TokenRange contexts = {}, prompts = {};  // that the profile measured
};

class Calibrator {
 public:
  // Starts the configuration's estimate from a profile's measurements, corrected by its status. Applies when the profile is new
  // or has changed.
  void adopt(const Configuration& configuration, const api::PerformanceProfile& profile,
             const planner::IterationModel& of_profile, const planner::LinearCoefficients& base);

  // `base`: from the data sheet. Workers of one phase teach that phase; only those that count their iterations, because other
  // times include what is waited for between phases. Returns whether anything was learned.
  bool learn(const Configuration& configuration, const std::string& worker, const WorkerPage& page,
             const planner::Lengths& lengths, const planner::LinearCoefficients& base,
             dispatch::Role role = dispatch::Role::kUnified);

  // Adds measurements of one idle worker of the configuration, taken at `at_s`.
  bool learn(const Configuration& configuration, const std::vector<planner::MeasuredIteration>& measured,
             const planner::LinearCoefficients& base, double at_s);

  [[nodiscard]] const Calibration* find(const Configuration& configuration) const;
  [[nodiscard]] const std::map<Configuration, Calibration>& all() const { return known_; }
  // nullopt: nothing is known yet.
  [[nodiscard]] std::optional<planner::WorkerEstimate> estimate(const Configuration& configuration) const;

  // Forgets the windows of all other workers, and all other configurations.
  void keep(const std::set<std::string>& workers, const std::set<Configuration>& configurations);

 private:
  std::map<Configuration, Calibration> known_;
};

// The estimate of each phase at an observed load and these sizes, relative to another model's.
[[nodiscard]] planner::PhaseScales scales_over(const planner::LatencyModel& other, const Calibration& known,
                                               const planner::ReferenceSizes& at = {});

// For the status of the profile with this fit.
[[nodiscard]] api::CalibrationStatus to_status(const Calibration& known, const planner::IterationModel& of_profile,
                                               const std::string& now_rfc3339);

}  // namespace windlass::controller
