// PerformanceProfile, as C++ sees it: the planner's fitted latency model as spec, and in status what the controller learnt from
// live workers.
//
// The spec is the planner's own type (planner/perf/performance_profile.h), so that a file that `windlass simulate` reads and an
// object of the API server are one thing. crds/performanceprofiles.yaml is the source of truth for names, defaults and limits.
// Namespaced. Owned by the caller, usable on any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/api/meta.h"
#include "planner/perf/performance_profile.h"

namespace windlass::api {

// What live workers' iterations take, over what the fit says: a new controller goes on from there.
struct PhaseCalibrationStatus {
  double scale = 1;
  double error = 0;          // standard deviation of one observation around what is believed, as a share of it
  std::int64_t samples = 0;  // observations of both phases
  std::int64_t outliers = 0;
  std::int64_t changes = 0;

  bool operator==(const PhaseCalibrationStatus&) const = default;
};

struct CalibrationStatus {
  std::string last_update_time;  // RFC 3339; empty: nothing was learnt yet
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
