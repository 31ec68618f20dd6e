// YAML to JSON, typed as kubectl types it.
//
// Plain scalars become null, booleans (YAML 1.1's yes and on too, as kubectl reads them), integers (0x, 0o and 0b too), numbers
// or strings; quoted ones stay strings; a number without a fraction becomes an integer (kubectl: "95.0" is sent as 95).
// Duplicate keys are refused. Anchors, aliases and << merge keys work. Several documents in one text are told apart; empty ones
// are left out.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"

namespace windlass::api {

struct YamlDocument {
  int line = 1;                        // on which it begins
  std::string json;                    // the document as JSON text
  std::map<std::string, int> line_of;  // "spec.slo.percentile", "spec.accelerators[0].class" -> the line of the value
};

// The error is "source:line: what is wrong".
[[nodiscard]] Result<std::vector<YamlDocument>> parse_yaml(std::string_view text, const std::string& source_name);

// One document's worth, for those who know that there is one: an error when there are none or several.
[[nodiscard]] Result<nlohmann::json> yaml_to_json(std::string_view text, const std::string& source_name);

// JSON as YAML that parse_yaml reads back as the same value; maps in the order of their keys.
[[nodiscard]] std::string to_yaml(const nlohmann::json& value);

}  // namespace windlass::api
