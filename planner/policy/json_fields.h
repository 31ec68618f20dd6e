// The fields of the policy's types as JSON values. For json.cc and the *_json.cc files here alone.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "planner/base/json_reader.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json fields_of(const ServiceId& id);
[[nodiscard]] Json fields_of(const ModelShape& shape);
[[nodiscard]] Json fields_of(const PolicyMemory& memory);
[[nodiscard]] Json fields_of(const workload::BestForecastState& state);
[[nodiscard]] Json fields_of(const Snapshot& snapshot);
[[nodiscard]] Json fields_of(const ServicePlan& plan);
[[nodiscard]] Json fields_of(const Plan& plan);

[[nodiscard]] Result<ServiceId> read_service_id(const nlohmann::json& value, const std::string& path);
[[nodiscard]] Result<ModelShape> read_model_shape(const nlohmann::json& value, const std::string& path);
[[nodiscard]] Result<workload::BestForecastState> read_forecast_state(const nlohmann::json& value, const std::string& path);
[[nodiscard]] Result<PolicyMemory> read_memory(const nlohmann::json& value, const std::string& path);
[[nodiscard]] Result<Snapshot> read_snapshot(const nlohmann::json& document);
[[nodiscard]] Result<Plan> read_plan(const nlohmann::json& document);

[[nodiscard]] DType read_dtype(JsonReader& reader, const char* key, const std::string& text);

// An enumeration from its name; `values` are all that are allowed.
template <class Enum>
Enum read_enum(JsonReader& reader, const char* key, std::initializer_list<Enum> values) {
  const std::string text = reader.string(key);
  std::string allowed;
  for (Enum value : values) {
    if (text == to_string(value)) return value;
    allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(value));
  }
  reader.fail(key, text, "one of " + allowed);
  return *values.begin();
}

// NaN and infinities as strings.
inline Json number(double value) {
  const nlohmann::json plain = json_number(value);
  return Json(plain);
}

inline void put(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = number(*value);
}

inline void put(Json& object, const char* key, const std::optional<int>& value) {
  if (value) object[key] = *value;
}

inline void put(Json& object, const char* key, const std::optional<Reading>& reading) {
  if (!reading) return;
  object[key] = Json{{"value", number(reading->value)}, {"atS", number(reading->at_s)}};
  if (reading->bound != Bound::kNone) object[key]["bound"] = to_string(reading->bound);
}

// A member read by `read(value, path)`; the mistake stays with the reader.
template <class T, class Read>
T child(JsonReader& reader, const char* key, Read read) {
  return reader.unwrap(read(reader.require(key), reader.path_of(key)));
}

inline std::optional<Reading> optional_reading(JsonReader& parent, const char* key) {
  const nlohmann::json* value = parent.find(key);
  if (value == nullptr) return std::nullopt;
  JsonReader reader(*value, parent.path_of(key));
  Reading reading{reader.number("value"), reader.number("atS")};
  if (reader.find("bound") != nullptr) reading.bound = read_enum(reader, "bound", {Bound::kNone, Bound::kBelow, Bound::kAbove});
  parent.take(reader.finish());
  return reading;
}

inline std::optional<double> optional_number(JsonReader& reader, const char* key) {
  if (reader.find(key) == nullptr) return std::nullopt;
  return reader.number(key);
}

inline std::optional<int> optional_int(JsonReader& reader, const char* key, int low) {
  if (reader.find(key) == nullptr) return std::nullopt;
  return reader.int32(key, low);
}

}  // namespace windlass::planner
