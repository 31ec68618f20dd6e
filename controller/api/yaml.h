// Converts YAML to JSON with the types that kubectl gives.
//
// Plain scalars become null, booleans (YAML 1.1, so yes and on too), integers (0x, 0o and 0b too), numbers or strings. Quoted
// scalars stay strings. A number without a fraction becomes an integer, as kubectl sends "95.0" as 95. Duplicate keys are
// refused. Anchors, aliases and << merge keys work. A text may hold several documents; empty ones are left out.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"

namespace windlass::api {

struct YamlDocument {
  int line = 1;                        // where it begins
  std::string json;                    // the document as JSON text
  std::map<std::string, int> line_of;  // "spec.slo.percentile", "spec.accelerators[0].class" -> line of the value
};

// The error is "source:line: message".
[[nodiscard]] Result<std::vector<YamlDocument>> parse_yaml(std::string_view text, const std::string& source_name);

// Parses a text that must hold exactly one document. Error: it holds none or several.
[[nodiscard]] Result<nlohmann::json> yaml_to_json(std::string_view text, const std::string& source_name);

// YAML that parse_yaml reads back as the same value; keys are sorted.
[[nodiscard]] std::string to_yaml(const nlohmann::json& value);

}  // namespace windlass::api
