// Converts a YAML value to JSON, for parts of a YAML text that another reader checks, such as a model's config.json written
// inline. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "planner/base/yaml_tree.h"

namespace windlass {

// Unquoted true, false, null and plain numbers get their types; every other text stays text.
[[nodiscard]] nlohmann::json json_of(const YamlValue& value);

}  // namespace windlass
