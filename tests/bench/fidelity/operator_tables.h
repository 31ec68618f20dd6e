// The tables of docs/algorithms/latency.md on operators and end-to-end measurements, as Markdown.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/fidelity/latency_tables.h"

namespace windlass::bench {

// Also "operator-efficiencies" (the source between the marks in planner/catalog/efficiency.cc) and "operator-rows" (the single
// end-to-end rows); the page contains neither.
[[nodiscard]] const std::vector<LatencyTable>& operator_tables();

}  // namespace windlass::bench
