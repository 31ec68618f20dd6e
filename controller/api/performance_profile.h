// PerformanceProfile as a C++ type. Its spec is the planner's fitted latency model; its status holds what the controller
// learned from live workers.
//
// The spec is the planner's own type (planner/perf/performance_profile.h), so `windlass simulate` reads the same files that the
// API server stores. crds/performanceprofiles.yaml is the source of truth for names, defaults and limits. Namespaced. Owned by
// the caller; usable on any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/api/meta.h"
#include "planner/perf/performance_profile.h"

namespace windlass::api {

// Measured iteration time of live workers, relative to the fit. A new controller starts from it.
struct PhaseCalibrationStatus {
  double scale = 1;
  double error = 0;          // relative standard deviation of one observation around the estimate
  std::int64_t samples = 0;  // observations, both phases
  std::int64_t outliers = 0;
  std::int64_t changes = 0;

  bool operator==(const PhaseCalibrationStatus&) const = default;
};

struct CalibrationStatus {
  std::string last_update_time;  // RFC 3339; empty: nothing learned yet
  PhaseCalibrationStatus prefill;
  PhaseCalibrationStatus decode;

  bool operator==(const CalibrationStatus&) const = default;
};

struct PerformanceProfileStatus {
  std::int64_t observed_generation = 0;
  CalibrationStatus calibration;
  std::vector<Condition> conditions;

  bool operator==(const PerformanceProfileStatus&) const = default;
};

struct PerformanceProfile {
  static constexpr const char* kKind = "PerformanceProfile";
  static constexpr const char* kPlural = "performanceprofiles";

  ObjectMeta metadata;
  planner::PerformanceProfile spec;
  PerformanceProfileStatus status;
};

}  // namespace windlass::api
