// Prints the plan of a snapshot next to that of the edited snapshot, for `windlass plan --what-if`. Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"
#include "planner/whatif/snapshot_edits.h"

namespace windlass::cli {

// Whether every service is feasible and nothing was denied.
[[nodiscard]] bool all_feasible(const planner::Plan& plan);

// Both plans are of the same services.
struct WhatIfPlans {
  std::vector<planner::SnapshotEdit> edits;
  planner::Plan now, what_if;
};

[[nodiscard]] std::string what_if_text(const WhatIfPlans& plans);

// {edits, now, whatIf, reasons}: both plans as `windlass plan -o json` prints them, and per service the reasons that differ.
[[nodiscard]] nlohmann::ordered_json what_if_json(const WhatIfPlans& plans);

}  // namespace windlass::cli
