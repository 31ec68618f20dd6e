// PerformanceProfile to and from JSON; the spec by planner/perf/profile_yaml.h.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/api/json.h"
#include "controller/api/json_read.h"
#include "planner/perf/profile_yaml.h"

namespace windlass::api {
namespace {

using nlohmann::json;

struct DecimalField {
  const char* name;
  double PhaseCalibrationStatus::*value;
};
constexpr DecimalField kDecimals[] = {{"scale", &PhaseCalibrationStatus::scale}, {"error", &PhaseCalibrationStatus::error}};
struct CountField {
  const char* name;
  std::int64_t PhaseCalibrationStatus::*value;
};
constexpr CountField kCounts[] = {{"samples", &PhaseCalibrationStatus::samples},
                                  {"outliers", &PhaseCalibrationStatus::outliers},
                                  {"changes", &PhaseCalibrationStatus::changes}};

PhaseCalibrationStatus read_phase(const FieldReader& in) {
  PhaseCalibrationStatus phase;
  for (const DecimalField& field : kDecimals) phase.*field.value = in.coefficient(field.name).value_or(phase.*field.value);
  for (const CountField& field : kCounts) phase.*field.value = in.integer(field.name).value_or(0);
  return phase;
}

json phase_json(const PhaseCalibrationStatus& phase) {
  json out = json::object();
  for (const DecimalField& field : kDecimals) out[field.name] = planner::print_coefficient(phase.*field.value);
  for (const CountField& field : kCounts) out[field.name] = phase.*field.value;
  return out;
}

}  // namespace

Result<PerformanceProfile> performance_profile_from_json(const json& object) {
  std::optional<Error> error;
  const FieldReader in(object, "", &error);
  PerformanceProfile profile;
  profile.metadata = read_meta(in.child("metadata"));
  const FieldReader status = in.child("status");
  profile.status.observed_generation = status.integer("observedGeneration").value_or(0);
  const FieldReader calibration = status.child("calibration");
  profile.status.calibration.last_update_time = calibration.text("lastUpdateTime");
  profile.status.calibration.prefill = read_phase(calibration.child("prefill"));
  profile.status.calibration.decode = read_phase(calibration.child("decode"));
  profile.status.conditions = read_conditions(status);
  if (!error.has_value()) {
    auto spec = planner::performance_profile_from_json(object.is_object() && object.contains("spec") ? object["spec"] : json());
    if (spec.ok()) {
      profile.spec = std::move(spec).value();
      return profile;
    }
    error = spec.error();
  }
  const ObjectMeta& meta = profile.metadata;
  const std::string name = meta.name_space.empty() ? meta.name : meta.name_space + "/" + meta.name;
  return error->within(fmt::format("{} {}", PerformanceProfile::kKind, name));
}

json to_json(const PerformanceProfileStatus& status) {
  json out = {{"observedGeneration", status.observed_generation}};
  const CalibrationStatus& calibration = status.calibration;
  if (!calibration.last_update_time.empty()) {
    out["calibration"] = {{"lastUpdateTime", calibration.last_update_time},
                          {"prefill", phase_json(calibration.prefill)},
                          {"decode", phase_json(calibration.decode)}};
  }
  for (const Condition& condition : status.conditions) out["conditions"].push_back(to_json(condition));
  return out;
}

json to_json(const PerformanceProfile& object) {
  json out = {{"apiVersion", kApiVersion},
              {"kind", PerformanceProfile::kKind},
              {"metadata", to_json(object.metadata)},
              {"spec", planner::to_json(object.spec)}};
  if (!(object.status == PerformanceProfileStatus{})) out["status"] = to_json(object.status);
  return out;
}

}  // namespace windlass::api
