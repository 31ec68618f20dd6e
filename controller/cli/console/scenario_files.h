// Reads the files that a SCENARIO names, for `windlass simulate` and `windlass plan`.
#pragma once

#include <map>
#include <string>

#include "planner/base/result.h"
#include "planner/whatif/scenario.h"

namespace windlass::cli {

// The text of each of sim::files_of(scenario), unpacked where it is gzipped, by the path that stands in the scenario; `path` is
// the scenario's own, which relative ones are relative to. The error names SCENARIO:LINE and the field.
[[nodiscard]] Result<std::map<std::string, std::string>> read_scenario_files(const std::string& path,
                                                                             const sim::Scenario& scenario);

}  // namespace windlass::cli
