// The accelerators that Windlass knows by name, with figures from their data sheets. docs/catalog.md shows them as a table;
// accelerators_by_name.cc names the source of each. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/accelerator.h"

namespace windlass::planner {

// "h100-80gb", ...; the error lists the known names.
[[nodiscard]] Result<AcceleratorSpec> accelerator_by_name(std::string_view name);
[[nodiscard]] std::vector<std::string> accelerator_names();

}  // namespace windlass::planner
