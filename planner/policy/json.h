// Converts Snapshot and Plan to JSON and back without loss, so that `windlass plan --snapshot FILE` replays any decision.
//
// Keys are the field names in camelCase; enumerations are their names; an absent optional is an absent key; NaN and infinities,
// which JSON lacks, are the strings "NaN", "Infinity", "-Infinity". Parsing rejects unknown keys; errors name the path
// ("services[0].slo.ttftS"), the value and the rule.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// Indented by two spaces if `pretty`.
[[nodiscard]] std::string to_json(const Snapshot& snapshot, bool pretty = false);
[[nodiscard]] std::string to_json(const Plan& plan, bool pretty = false);
[[nodiscard]] Result<Snapshot> snapshot_from_json(std::string_view text);
[[nodiscard]] Result<Plan> plan_from_json(std::string_view text);

// One offer, for status.plan.
[[nodiscard]] std::string to_json(const Offer& offer);
[[nodiscard]] Result<Offer> offer_from_json(std::string_view text);

// One service's plan as a JSON value, for status and reports.
[[nodiscard]] nlohmann::ordered_json to_json_value(const ServicePlan& plan);

}  // namespace windlass::planner
