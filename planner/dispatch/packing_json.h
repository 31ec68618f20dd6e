// PackingModel as JSON: in the routing table and in plans. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "planner/base/result.h"
#include "planner/dispatch/packed_worker.h"

namespace windlass::dispatch {

// Keys as the fields in camelCase.
[[nodiscard]] nlohmann::ordered_json to_json(const PackingModel& model);
// Names the field under `path`, what was found and what is allowed: finite numbers of at least 0. Other keys are passed over.
[[nodiscard]] Result<PackingModel> packing_model_from_json(const nlohmann::json& value, const std::string& path);

}  // namespace windlass::dispatch
