// LiveCalibration feeds the calibrator: it finds each worker's configuration and the PerformanceProfile for it, and prepares
// the status of each profile.
//
// If a profile cannot be used (for instance, operator tables measured for another model), only that profile is affected: its
// condition says why, and its configuration is calibrated without it. Without a profile, what is learned is lost with this
// controller, and a new one relearns it within seconds. Single-threaded; times are monotonic seconds.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/api/model_service.h"
#include "controller/api/performance_profile.h"
#include "controller/reconcile/calibrator.h"
#include "controller/reconcile/probe_questions.h"
#include "controller/runtime/worker_runtime.h"
#include "planner/perf/performance_profile.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

class Signals;

// Condition type of a PerformanceProfile.
inline constexpr const char* kUsable = "Usable";

class LiveCalibration {
 public:
  static constexpr double kWritePeriodS = 30;  // per profile

  struct ServiceView {
    const api::ModelService* service = nullptr;
    const planner::Service* planned = nullptr;
    const std::vector<Worker>* workers = nullptr;
  };
  // Takes in the profiles, the workers' newest pages and the results of `probes`, and asks `probes` to measure unknown
  // configurations. `signals`: nullptr if there are no workers. `probes`: nullptr if workers are not probed.
  void step(const std::vector<ServiceView>& services, const std::vector<planner::AcceleratorState>& accelerators,
            const std::vector<api::PerformanceProfile>& profiles, const Signals* signals, ProbeQuestions* probes = nullptr,
            double wall_s = 0);

  // Of all configurations of the service, by accelerator and number of GPUs.
  [[nodiscard]] std::vector<planner::WorkerEstimate> estimates(const api::ModelService& service) const;

  [[nodiscard]] const Calibrator& calibrator() const { return calibrator_; }

  // The new status of the profile; nullopt if it is not worth writing or not due.
  [[nodiscard]] std::optional<api::PerformanceProfileStatus> status_to_write(const api::PerformanceProfile& profile,
                                                                             double now_s,
                                                                             const std::string& now_rfc3339) const;
  void written(const api::PerformanceProfile& profile, double now_s) { written_s_[profile.metadata.uid] = now_s; }

 private:
  struct Fit {
    std::int64_t generation = 0;
    Configuration of;  // the configuration whose shape and accelerator were used to read it
    std::shared_ptr<const planner::IterationModel> model;
    std::string problem;
  };

  void probe(const ServiceView& view, const Configuration& configuration, const Worker& worker, const WorkerPage& page,
             const planner::LinearCoefficients& base, ProbeQuestions& probes, double wall_s);
  const Fit& fit_of(const api::PerformanceProfile& profile, const Configuration& configuration,
                    const planner::ModelShape& shape, const planner::AcceleratorSpec& accelerator,
                    const planner::LinearCoefficients& base);

  Calibrator calibrator_;
  std::map<std::string, Fit> fits_;                  // by the profile's uid
  std::map<std::string, Configuration> profile_of_;  // by the profile's uid; only profiles that a service uses now
  std::map<std::string, double> written_s_;          // by the profile's uid
};

}  // namespace windlass::controller
