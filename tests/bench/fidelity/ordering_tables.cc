// Implements ordering_tables.h.
#include "tests/bench/fidelity/ordering_tables.h"

#include "tests/bench/fidelity/distserve_ordering.h"
#include "tests/bench/fidelity/splitwise_cluster.h"
#include "tests/bench/fidelity/tetriinfer_ordering.h"
#include "tests/bench/fidelity/vidur_fidelity.h"
#include "tests/bench/fidelity/vidur_ordering.h"

namespace windlass::bench {

const std::vector<LatencyTable>& ordering_tables() {
  static const std::vector<LatencyTable> kTables = {
      {"splitwise-cluster", splitwise_cluster_table},    {"orderings-vidur", vidur_ordering_table},
      {"vidur-iterations", vidur_iterations_table},      {"vidur-simulator", vidur_simulator_table},
      {"orderings-distserve", distserve_ordering_table}, {"orderings-tetriinfer", tetriinfer_table}};
  return kTables;
}

}  // namespace windlass::bench
