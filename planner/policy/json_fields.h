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

constexpr auto json_values(JsonType<Batching>) { return kAllBatchings; }
constexpr auto json_values(JsonType<Preemption>) { return kAllPreemptions; }
constexpr auto json_values(JsonType<PromptOrder>) { return kAllPromptOrders; }
constexpr auto json_values(JsonType<DecodeAdmission>) { return kAllDecodeAdmissions; }

constexpr auto json_fields(JsonType<EngineSettings>) {
  using T = EngineSettings;
  return json_object(
      rare("batching", &T::batching), rare("maxSequences", &T::max_sequences, 1),
      rare("maxBatchTokens", &T::max_batch_tokens, 1), rare("blockTokens", &T::block_tokens, 1),
      rare("kvBlocks", &T::kv_blocks, 0), rare("admissionReserve", &T::admission_reserve), rare("preemption", &T::preemption),
      rare("hostBlocks", &T::host_blocks, 0), rare("prefixCaching", &T::prefix_caching), rare("promptOrder", &T::prompt_order),
      rare("promptOrderWindow", &T::prompt_order_window, 1), rare("admission", &T::admission),
      rare("schedulesAhead", &T::schedules_ahead), rare("padsChunks", &T::pads_chunks), field("precision", &T::precision));
}

constexpr auto json_fields(JsonType<WorkerSpec>) {
  using T = WorkerSpec;
  return json_object(field("accelerator", &T::accelerator), field("gpusPerWorker", &T::tensor_parallel, 0),
                     rare("pipelineStages", &T::pipeline_stages, 1), rare("engine", &T::engine),
                     rare("powerShare", &T::power_share), rare("lengthPredictor", &T::length_predictor));
}

inline constexpr JsonLimit kAtLeastZero{[](double value) { return value >= 0; }, "at least 0"};
inline constexpr JsonLimit kAtLeastOne{[](double value) { return value >= 1; }, "at least 1"};
inline constexpr JsonLimit kPositive{[](double value) { return value > 0; }, "greater than 0"};

constexpr auto json_fields(JsonType<OfferedPool>) {
  using T = OfferedPool;
  return json_object(field("role", &T::role), part(&T::spec), field("workers", &T::workers, 1),
                     rare("loadShare", &T::load_share).within(kPositive), field("requestsPerS", &T::requests_per_s),
                     rare("closedFormPerS", &T::closed_form_per_s), rare("capacityRatio", &T::capacity_ratio).within(kPositive),
                     rare("slotsRatio", &T::slots_ratio).within(kAtLeastOne),
                     limit("requestsPerS", &T::requests_per_s, kPositive));
}

constexpr auto json_fields(JsonType<Offer>) {
  using T = Offer;
  return json_object(field("strategy", &T::strategy), field("pools", &T::pools), rare("dispatch", &T::dispatch),
                     field("requestsPerS", &T::requests_per_s), field("capacityPerS", &T::capacity_per_s),
                     field("attainment", &T::attainment), field("costPerHour", &T::cost_per_hour), rare("why", &T::why));
}

constexpr auto json_fields(JsonType<StrategyAnswer>) {
  using T = StrategyAnswer;
  return json_object(field("strategy", &T::strategy), field("deployment", &T::deployment),
                     field("costPerHour", &T::cost_per_hour), field("outcome", &T::outcome));
}

constexpr auto json_fields(JsonType<AssumedWorkload>) {
  using T = AssumedWorkload;
  return json_object(field("requestsPerS", &T::requests_per_s), field("inputTokens", &T::input_tokens),
                     field("outputTokens", &T::output_tokens), limit("requestsPerS", &T::requests_per_s, kAtLeastZero),
                     limit("inputTokens", &T::input_tokens, kAtLeastOne),
                     limit("outputTokens", &T::output_tokens, kAtLeastOne));
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
extern template void write_fields(planner::Json&, const planner::Offer&);
extern template void write_fields(planner::Json&, const planner::PolicyMemory&);
extern template void write_fields(planner::Json&, const planner::Snapshot&);
extern template void write_fields(planner::Json&, const planner::ServicePlan&);
extern template void write_fields(planner::Json&, const planner::Plan&);
extern template Result<planner::ModelShape> read_json(const nlohmann::json&, const std::string&);
extern template Result<planner::Offer> read_json(const nlohmann::json&, const std::string&);
extern template Result<planner::PolicyMemory> read_json(const nlohmann::json&, const std::string&);
extern template Result<planner::Snapshot> read_json(const nlohmann::json&, const std::string&);
extern template Result<planner::Plan> read_json(const nlohmann::json&, const std::string&);

}  // namespace windlass
