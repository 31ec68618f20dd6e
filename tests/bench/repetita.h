// Round-trip times between the nodes of a graph of the Internet Topology Zoo, in REPETITA's format (../shared/data/topology):
// twice the least sum of link delays, as in the simulator that Sun et al. published for "Optimizing Resource Allocation for
// Geographically-Distributed Inference by Large Language Models".
#pragma once

#include <string>
#include <vector>

#include "planner/base/result.h"

namespace windlass::bench {

using RoundTrips = std::vector<std::vector<double>>;  // seconds, by node and node

// Links work in both directions. Error kInvalidArgument if the text is not such a graph.
[[nodiscard]] Result<RoundTrips> parse_repetita(const std::string& text);

}  // namespace windlass::bench
