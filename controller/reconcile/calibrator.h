// Calibrator: the planner's latency model corrected by what live workers' pages say, for one configuration at a time.
//
// No engine tells how long an iteration took, so observations are derived, from two pages of a worker ten seconds or more
// apart:
//   decode   the mean gap between a request's tokens, less the time in which other requests' prefills stalled it, at the batch
//            that ran: only where that stood still, and prefills took less than half of the time
//   prefill  the mean TTFT, less the iteration under way: only where nothing waited, and prefills took little of the time
// A window that fits neither teaches nothing. A worker's first half minute is cold, and so is it again after its process starts
// anew. What is learnt, and how outliers and drift are met, is planner/perf/calibration.h.
//
// Pure: times come in as arguments. Single-threaded.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "controller/api/performance_profile.h"
#include "controller/reconcile/worker_signals.h"
#include "planner/perf/calibration.h"
#include "planner/policy/snapshot.h"
#include "planner/search/worker_config.h"

namespace windlass::controller {

struct Configuration {
  std::string name_space;
  std::string model;   // as a PerformanceProfile names it
  std::string engine;  // spec.engine.type: another engine, other times
  std::string accelerator;
  int gpus_per_worker = 0;

  auto operator<=>(const Configuration&) const = default;
};

// What two pages of a worker say together.
struct WorkerWindow {
  double seconds = 0;
  double batch = 0;          // mean of what ran, weighted by itself: as a token sees it
  bool steady = false;       // the batch stood still while anything ran
  double busy_share = 0;     // of the readings, in which something ran
  double most_waiting = 0;   // infinite where the worker does not tell
  double token_gap_s = 0;    // mean; 0: unknown
  double ttft_s = 0;         // mean; 0: unknown
  double prefills = 0;       // requests that got their first token
  double prompt_tokens = 0;  // mean of these, without what the KV cache had of them; 0: unknown
  bool cold = false;
};

class WindowReader {
 public:
  static constexpr double kWindowS = 10;  // at least; longer where pages come so seldom that fewer than these would be in it
  static constexpr int kLeastReadings = 3;
  static constexpr double kColdS = 30;

  // Takes the worker's newest page. A window when one is complete. `restarted` is set when the process began anew.
  struct Step {
    std::optional<WorkerWindow> window;
    bool restarted = false;
  };
  Step take(const WorkerPage& page);

 private:
  void begin(const WorkerPage& page);

  std::optional<WorkerPage> first_;
  std::optional<double> last_at_s_;
  std::optional<double> warm_at_s_;
  double least_running_ = 0, most_running_ = 0, running_sum_ = 0, running_squares_ = 0;
  int readings_ = 0, busy_ = 0;
  double most_waiting_ = 0;
};

// nullopt: the window teaches nothing about the phase. `model` is corrected by what is known already.
[[nodiscard]] std::optional<planner::LatencyObservation> decode_observation(const WorkerWindow& window,
                                                                            const planner::Lengths& lengths,
                                                                            const planner::IterationModel& model);
[[nodiscard]] std::optional<planner::LatencyObservation> prefill_observation(const WorkerWindow& window,
                                                                             const planner::Lengths& lengths,
                                                                             const planner::IterationModel& model);

// The planner's own linear model as iterations.
[[nodiscard]] std::shared_ptr<const planner::IterationModel> planner_model(const planner::ModelShape& shape,
                                                                           const planner::AcceleratorSpec& accelerator,
                                                                           int gpus);

// What is known of one configuration.
struct Calibration {
  planner::CalibrationState of_planner;  // against the planner's model: what plans are corrected by
  planner::CalibrationState of_profile;  // against the fit of its PerformanceProfile: what that object's status says
  std::int64_t profile_samples = 0;      // behind the correction that of_planner began with
};

class Calibrator {
 public:
  Calibrator();

  // A PerformanceProfile speaks of this configuration: the first time, what it measured and learnt before becomes what the
  // planner's model is corrected by at first.
  void adopt(const Configuration& configuration, const api::PerformanceProfile& profile,
             const planner::IterationModel& of_profile, const planner::IterationModel& of_planner);

  // `of_profile` may be nullptr. Returns whether anything was learnt.
  bool learn(const Configuration& configuration, const std::string& worker, const WorkerPage& page,
             const planner::Lengths& lengths, const planner::IterationModel& of_planner,
             const planner::IterationModel* of_profile);

  [[nodiscard]] const Calibration* find(const Configuration& configuration) const;
  [[nodiscard]] const std::map<Configuration, Calibration>& all() const { return known_; }
  // nullopt: nothing is known yet.
  [[nodiscard]] std::optional<planner::LatencyCorrection> correction(const Configuration& configuration) const;

  // Forgets other workers' windows, and configurations that nobody asks for.
  void keep(const std::set<std::string>& workers, const std::set<Configuration>& configurations);

 private:
  std::map<std::string, WindowReader> readers_;  // by the worker's uid
  std::map<Configuration, Calibration> known_;
  std::set<Configuration> adopted_;
};

[[nodiscard]] planner::CalibrationOptions live_calibration_options();
[[nodiscard]] api::PhaseCalibrationStatus to_status(const planner::PhaseCalibration& phase);
// A state that goes on from there; the workers' warm-ups are counted anew.
[[nodiscard]] planner::PhaseCalibration from_status(const api::PhaseCalibrationStatus& status);

}  // namespace windlass::controller
