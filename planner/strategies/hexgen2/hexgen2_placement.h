// A placement during the search: groups of GPUs with their phases, the order of their pipelines, and the resulting flow.
//
// Implements the second phase of HexGen-2 (Section 3.3) as a function of the groups and their phases: strategies from the
// table, then the order of each pipeline's stages, then the flow. Plain data except for the borrowed table.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/strategies/hexgen2/hexgen2_flow.h"
#include "planner/strategies/hexgen2/hexgen2_strategies.h"

namespace windlass::hetero {

struct PlacedGroup {
  Composition gpus;
  bool prefill = true;  // otherwise decode
  const GroupEntry* entry = nullptr;
  std::size_t order = 0;  // index in the phase's PhaseStrategy::orders

  [[nodiscard]] const PhaseStrategy& strategy() const {
    return prefill ? entry->strategies->prefill : entry->strategies->decode;
  }
  [[nodiscard]] bool serves() const { return strategy().capacity_requests_per_s > 0; }
  [[nodiscard]] const std::vector<OrderedStage>& stages() const { return strategy().orders[order]; }
};

using Placement = std::vector<PlacedGroup>;

[[nodiscard]] PlacedGroup place(StrategyTable& table, Composition gpus, bool prefill);

// Seconds to transfer one request's prompt from a prefill group to a decode group: the slowest among the stage pairs that share
// layers, each over as many connections as the smaller stage has GPUs with different parts of the cache. Infinite if a link is
// missing. REQUIRES: from.prefill, !to.prefill, both serve.
[[nodiscard]] double kv_transfer_s(const StrategyTable& table, const PlacedGroup& from, const PlacedGroup& to);

// Chooses the order of each group's pipeline to minimise the total KV transfer time to or from all groups of the other phase,
// group by group until none changes (at most kArrangeRounds rounds).
inline constexpr int kArrangeRounds = 4;
void arrange_pipelines(const StrategyTable& table, Placement& groups);
// The same for one group, with the others fixed. Returns whether its order changed.
bool arrange_pipeline(const StrategyTable& table, Placement& groups, std::size_t group);

// 1 / kv_transfer_s() in flow units.
[[nodiscard]] std::int64_t edge_units(const StrategyTable& table, const PlacedGroup& from, const PlacedGroup& to);

// Indices of the serving groups by phase, and their network.
struct PlacementNetwork {
  std::vector<std::size_t> prefill, decode;
  FlowNetwork flow;
};
[[nodiscard]] PlacementNetwork network_of(const StrategyTable& table, const Placement& groups);

// Runs phase 2 on groups whose phases are known, from the start. Reorders `groups` into a canonical order, so that equal
// placements have equal flows. Returns flow units.
[[nodiscard]] std::int64_t second_phase(StrategyTable& table, Placement& groups, BipartiteFlow& flow);

// The flow of the groups as they are.
[[nodiscard]] std::int64_t flow_of(const StrategyTable& table, const Placement& groups, BipartiteFlow& flow);

}  // namespace windlass::hetero
