// The tables of docs/algorithms/latency.md on operators and on end-to-end measurements, as Markdown.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/fidelity/latency_tables.h"

namespace windlass::bench {

// Also "operator-efficiencies", which is the source between the marks in planner/catalog/efficiency.cc, and "operator-rows",
// the end-to-end rows one by one; the page holds neither.
[[nodiscard]] const std::vector<LatencyTable>& operator_tables();

}  // namespace windlass::bench
