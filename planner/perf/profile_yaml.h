// PerformanceProfile as text: the YAML (or JSON) of the custom resource, read for the planner without an API server, and its
// spec as JSON. crds/performanceprofiles.yaml says what may stand in it; this reader asks for the same and names the line, the
// field, what was found and what is allowed.
//
// Numbers that a fit found are decimal strings of 17 digits, tables of operators are CSV in one string: what is written is read
// back exactly, and predicts exactly the same. Pure.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "planner/base/result.h"
#include "planner/perf/performance_profile.h"

namespace windlass::planner {

// Whether the text is meant to be one: cheap, for readers of files that may hold other things too.
[[nodiscard]] bool is_performance_profile(std::string_view text);

// The whole object: apiVersion, kind, metadata (passed over) and spec; status is passed over. Fields that it does not know are
// refused. The error is "SOURCE:LINE: spec.fit...: found ..., allowed ...".
[[nodiscard]] Result<PerformanceProfile> parse_performance_profile(std::string_view text, const std::string& source);

// A spec that the schema has been through; fields that it does not know are passed over. The error is "spec.fit...: found ...".
[[nodiscard]] Result<PerformanceProfile> performance_profile_from_json(const nlohmann::json& spec);
[[nodiscard]] nlohmann::json to_json(const PerformanceProfile& profile);

// A coefficient as files hold it: 17 digits, so that it reads back as the same double. REQUIRES: finite.
[[nodiscard]] std::string print_coefficient(double value);
// None for anything but a finite decimal number, with an exponent or without.
[[nodiscard]] std::optional<double> parse_coefficient(std::string_view text);

}  // namespace windlass::planner
