// Reads the files that a SCENARIO file refers to, for `windlass simulate` and `windlass plan`.
#pragma once

#include <map>
#include <string>

#include "planner/base/result.h"
#include "planner/whatif/scenario.h"

namespace windlass::cli {

// The text of each of sim::files_of(scenario), decompressed if gzipped, keyed by the path in the scenario. Relative paths start
// at the folder of `path`, the scenario's own file. The error names SCENARIO:LINE and the field.
[[nodiscard]] Result<std::map<std::string, std::string>> read_scenario_files(const std::string& path,
                                                                             const sim::Scenario& scenario);

}  // namespace windlass::cli
