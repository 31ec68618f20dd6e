// The tables of docs/algorithms/latency.md on results of papers about clusters: Splitwise's number of machines, and the
// orderings of Vidur, DistServe and TetriInfer.
#pragma once

#include <vector>

#include "tests/bench/fidelity/latency_tables.h"

namespace windlass::bench {

[[nodiscard]] const std::vector<LatencyTable>& ordering_tables();

}  // namespace windlass::bench
