// Builds the snapshot that `windlass plan` plans from, with and without a strategy.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

// The files' ModelServices as newly created, what their PerformanceProfiles measured, and the classes: those of the files, this
// machine and those of the catalog where services name them, or the whole catalog where nothing names any. `notes`: remarks for
// people.
[[nodiscard]] Result<planner::Snapshot> plan_snapshot(const std::vector<std::string>& files, std::ostream& notes);

}  // namespace windlass::cli
