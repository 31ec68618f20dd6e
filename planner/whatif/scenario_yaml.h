// Reads a SCENARIO file of `windlass simulate`. Foreign bytes: errors are values. Pure; docs/simulate.md lists the fields.
#pragma once

#include <string>
#include <string_view>

#include "planner/base/result.h"
#include "planner/whatif/scenario.h"

namespace windlass::sim {

// The error is "SOURCE:LINE: FIELD: found ..., allowed is ...". Names of models and accelerators are looked up in the catalog;
// what the simulator cannot do yet is refused by its field.
[[nodiscard]] Result<Scenario> parse_scenario(std::string_view yaml, const std::string& source);

}  // namespace windlass::sim
