// Reads and writes a PerformanceProfile as text: the YAML (or JSON) of the custom resource, read without an API server, and its
// spec as JSON. crds/performanceprofiles.yaml defines the format. This reader enforces the same rules; errors name the line,
// the field, what was found and what is allowed.
//
// Numbers from a fit are decimal strings of 17 digits, and operator tables are CSV in one string, so that a profile read back
// predicts exactly the same. Pure.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "planner/base/result.h"
#include "planner/perf/performance_profile.h"

namespace windlass::planner {

// Whether the text is meant to be a profile: a cheap check for readers of files that may hold other things too.
[[nodiscard]] bool is_performance_profile(std::string_view text);

// Parses the whole object: apiVersion, kind, metadata (ignored), spec, status (ignored). Unknown fields are refused. Errors are
// "SOURCE:LINE: spec.fit...: must be ... (got ...)".
[[nodiscard]] Result<PerformanceProfile> parse_performance_profile(std::string_view text, const std::string& source);

// Parses a spec that was validated by the schema; unknown fields are ignored. Errors are "spec.fit...: must be ... (got ...)".
[[nodiscard]] Result<PerformanceProfile> performance_profile_from_json(const nlohmann::json& spec);
[[nodiscard]] nlohmann::json to_json(const PerformanceProfile& profile);

// Prints a coefficient with 17 digits, so that it reads back as the same double. REQUIRES: finite.
[[nodiscard]] std::string print_coefficient(double value);
// None for anything except a finite decimal number, with or without an exponent.
[[nodiscard]] std::optional<double> parse_coefficient(std::string_view text);

}  // namespace windlass::planner
