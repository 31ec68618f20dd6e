// Shared field helpers for the JSON tables of the policy's types (planner/base/json_table.h). Only for json.cc and the
// *_json.cc files in this folder.
#pragma once

#include <array>
#include <string>

#include <nlohmann/json.hpp>

#include "planner/base/json_table.h"
#include "planner/dispatch/packing_json.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass {

constexpr auto json_values(JsonType<Bound>) { return std::array{Bound::kNone, Bound::kBelow, Bound::kAbove}; }

}  // namespace windlass

namespace windlass::planner {

using Json = nlohmann::ordered_json;

template <class T>
[[nodiscard]] Json fields_of(const T& value) {
  Json object = Json::object();
  write_fields(object, value);
  return object;
}

[[nodiscard]] DType read_dtype(JsonReader& reader, const char* key, const std::string& text);
[[nodiscard]] inline DType read_enum(JsonReader& reader, const char* key, JsonType<DType>) {
  return read_dtype(reader, key, reader.string(key));
}

constexpr auto json_values(JsonType<Family>) {
  return std::array{Family::kAuto, Family::kReplicated, Family::kDisaggregated, Family::kChained};
}

constexpr auto json_fields(JsonType<ServiceId>) {
  return json_object(field("namespace", &ServiceId::name_space), field("name", &ServiceId::name),
                     field("uid", &ServiceId::uid));
}

constexpr auto json_fields(JsonType<Reading>) {
  return json_object(field("value", &Reading::value), field("atS", &Reading::at_s), rare("bound", &Reading::bound));
}

// A value that upgrades a text of an older version after the fields above it in the table have been read.
template <class Change>
[[nodiscard]] constexpr auto once_read(Change change) {
  return hook([](auto&, const auto&) {}, [=](JsonReader&, auto& object) { change(object); });
}

// For checked_by(): the type's own validate().
inline constexpr auto kValidated = [](const auto& value, const std::string& path) -> Result<void> {
  if (Result<void> valid = validate(value); !valid.ok()) return valid.error().within(path);
  return {};
};

}  // namespace windlass::planner

// Each is defined in the file with its table.
namespace windlass {

extern template void write_fields(planner::Json&, const planner::ModelShape&);
extern template void write_fields(planner::Json&, const planner::PolicyMemory&);
extern template void write_fields(planner::Json&, const planner::Snapshot&);
extern template void write_fields(planner::Json&, const planner::ServicePlan&);
extern template void write_fields(planner::Json&, const planner::Plan&);
extern template Result<planner::ModelShape> read_json(const nlohmann::json&, const std::string&);
extern template Result<planner::PolicyMemory> read_json(const nlohmann::json&, const std::string&);
extern template Result<planner::Snapshot> read_json(const nlohmann::json&, const std::string&);
extern template Result<planner::Plan> read_json(const nlohmann::json&, const std::string&);

}  // namespace windlass
