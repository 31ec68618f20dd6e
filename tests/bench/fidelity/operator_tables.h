// The tables of docs/algorithms/latency-operators.md and latency-roofline.md, as Markdown.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/fidelity/latency_tables.h"

namespace windlass::bench {

// Also "operator-efficiencies" (the source between the marks in planner/catalog/efficiency.cc), which no page contains.
[[nodiscard]] const std::vector<LatencyTable>& operator_tables();

}  // namespace windlass::bench
