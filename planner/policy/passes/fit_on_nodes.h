// Fits claims on nodes: a worker needs all its GPUs on one node, so a class may have free GPUs and no room. Used after GPUs
// have been divided by their total (planner/policy/arbitration.h). Classes whose nodes are unknown, or can be added, have no
// limit.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/policy/arbitration.h"
#include "planner/policy/passes/draft.h"

namespace windlass::planner {

struct NodeFit {
  std::vector<int> most;                   // by claim: most workers that have a node or find one
  std::map<std::string, FreeByNode> free;  // by class: what is left on each node; only classes with known nodes
};

// Puts the workers that each claim would have beyond those it keeps on nodes, in arbitration's order, and larger workers first
// where it has none. A node offers what is free on it, what arbitration may take from others for this claim, and what pools
// that shrink hold, since any of their workers may be the one that goes. `drained`: also what draining workers hold.
[[nodiscard]] NodeFit fit_on_nodes(const FleetDraft& fleet, const std::vector<Claim>& claims, const std::vector<int>& workers,
                                   bool drained);

}  // namespace windlass::planner
