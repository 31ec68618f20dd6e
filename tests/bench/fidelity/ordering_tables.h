// The tables of docs/algorithms/latency.md on orderings that papers report: Vidur's, DistServe's and TetriInfer's.
#pragma once

#include <vector>

#include "tests/bench/fidelity/latency_tables.h"

namespace windlass::bench {

[[nodiscard]] const std::vector<LatencyTable>& ordering_tables();

}  // namespace windlass::bench
