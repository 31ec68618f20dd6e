// The tables and charts of docs/algorithms/latency-end-to-end.md, and "end-to-end-rows" (every row), which no page contains.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/fidelity/latency_tables.h"

namespace windlass::bench {

// `aiconfigurator_csv`: what aiconfigurator predicts for the same rows, from ask_aiconfigurator.py; empty: its table says so.
[[nodiscard]] std::vector<LatencyTable> end_to_end_tables(const std::string& aiconfigurator_csv);

}  // namespace windlass::bench
