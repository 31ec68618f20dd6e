// MetricsReport exports what was observed and decided as the controller's metrics. docs/metrics.md explains each.
//
// publish() sets the current series and removes stale ones. clear() removes all of them, because only a leader reports
// services. Single-threaded, like the step that it reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/api/model_service.h"
#include "controller/reconcile/observe.h"
#include "controller/reconcile/state.h"
#include "metrics/bundles.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

class MetricsReport {
 public:
  // `metrics` outlives this.
  explicit MetricsReport(metrics::ControllerMetrics& metrics) : metrics_(metrics) {}

  // Updates the counters. Call once per plan.
  void count(const planner::Plan& plan);

  // Updates the gauges. `statuses` is parallel to observation.services.
  void publish(const Observation& observation, const planner::Plan& plan, const std::vector<api::ModelServiceStatus>& statuses,
               const ControllerState& state, const std::vector<BrokenObject>& broken, Instant now);

  void clear();

 private:
  struct Series {
    metrics::Gauge gauge;
    std::uint64_t round = 0;
  };
  struct Counted {
    metrics::Labels labels;
    std::set<std::string> reasons;              // in the last plan
    std::optional<int> desired;                 // in the last plan
    std::set<std::string> decided, directions;  // that have series
  };
  struct ServiceView;

  void put(const metrics::GaugeFamily& family, const metrics::Labels& labels, double value);
  void put_workers(const ServiceView& view);
  void put_plan(const ServiceView& view);
  void put_denials(const ServiceView& view);
  void put_predictions(const ServiceView& view);
  void put_signals(const ServiceView& view);
  void put_calibration(const ControllerState& state);
  void put_accelerators(const Observation& observation);
  void sweep();
  void forget(const Counted& counted);

  metrics::ControllerMetrics& metrics_;
  std::map<const metrics::GaugeFamily*, std::map<metrics::Labels, Series>> series_;
  std::uint64_t round_ = 1;
  std::map<std::string, Counted> counted_;  // by the service's UID
};

}  // namespace windlass::controller
