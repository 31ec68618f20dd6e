// See hexgen2_placement.h.
#include "planner/strategies/hexgen2/hexgen2_placement.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace windlass::hetero {

PlacedGroup place(StrategyTable& table, Composition gpus, bool prefill) {
  PlacedGroup group;
  group.entry = &table.of(gpus);
  group.gpus = std::move(gpus);
  group.prefill = prefill;
  return group;
}

double kv_transfer_s(const StrategyTable& table, const PlacedGroup& from, const PlacedGroup& to) {
  const std::vector<OrderedStage>& senders = from.stages();
  const std::vector<OrderedStage>& receivers = to.stages();
  double slowest = 0;
  for (std::size_t s = 0, r = 0; s < senders.size() && r < receivers.size();) {
    const OrderedStage& sender = senders[s];
    const OrderedStage& receiver = receivers[r];
    const int sender_end = sender.first_layer + sender.layers, receiver_end = receiver.first_layer + receiver.layers;
    const int layers = std::min(sender_end, receiver_end) - std::max(sender.first_layer, receiver.first_layer);
    const int connections = std::min({sender.tensor_parallel, receiver.tensor_parallel, table.task().kv_shards});
    const Link& link = table.link(from.entry->nodes[static_cast<std::size_t>(sender.slot)],
                                  to.entry->nodes[static_cast<std::size_t>(receiver.slot)]);
    slowest = std::max(slowest, kv_transfer_s(table.task(), link, layers, connections));
    if (sender_end <= receiver_end) ++s;
    if (receiver_end <= sender_end) ++r;
  }
  return slowest;
}

bool arrange_pipeline(const StrategyTable& table, Placement& groups, std::size_t index) {
  PlacedGroup& group = groups[index];
  if (!group.serves() || group.strategy().orders.size() < 2) return false;
  const std::size_t before = group.order;
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t order = 0; order < group.strategy().orders.size(); ++order) {
    group.order = order;
    double sum = 0;
    for (const PlacedGroup& other : groups) {
      if (other.prefill == group.prefill || !other.serves()) continue;
      // A missing link counts as an hour, so that fewer of them are better.
      sum += std::min(3600.0, group.prefill ? kv_transfer_s(table, group, other) : kv_transfer_s(table, other, group));
      if (sum >= least) break;
    }
    if (sum < least * (1 - 1e-12)) least = sum, best = order;
  }
  group.order = best;
  return best != before;
}

void arrange_pipelines(const StrategyTable& table, Placement& groups) {
  for (int round = 0; round < kArrangeRounds; ++round) {
    bool changed = false;
    for (std::size_t group = 0; group < groups.size(); ++group) changed = arrange_pipeline(table, groups, group) || changed;
    if (!changed) break;
  }
}

std::int64_t edge_units(const StrategyTable& table, const PlacedGroup& from, const PlacedGroup& to) {
  const double seconds = kv_transfer_s(table, from, to);
  return seconds > 0 ? flow_units(1 / seconds) : flow_units(std::numeric_limits<double>::max());
}

PlacementNetwork network_of(const StrategyTable& table, const Placement& groups) {
  PlacementNetwork network;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].serves()) continue;
    (groups[i].prefill ? network.prefill : network.decode).push_back(i);
    (groups[i].prefill ? network.flow.prefill : network.flow.decode)
        .push_back(flow_units(groups[i].strategy().capacity_requests_per_s));
  }
  network.flow.edges.reserve(network.prefill.size() * network.decode.size());
  for (const std::size_t p : network.prefill) {
    for (const std::size_t d : network.decode) network.flow.edges.push_back(edge_units(table, groups[p], groups[d]));
  }
  return network;
}

std::int64_t flow_of(const StrategyTable& table, const Placement& groups, BipartiteFlow& flow) {
  std::vector<std::size_t> prefill, decode;
  std::vector<std::int64_t> prefill_units, decode_units;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].serves()) continue;
    (groups[i].prefill ? prefill : decode).push_back(i);
    (groups[i].prefill ? prefill_units : decode_units).push_back(flow_units(groups[i].strategy().capacity_requests_per_s));
  }
  return flow.solve(prefill_units, decode_units,
                    [&](std::size_t p, std::size_t d) { return edge_units(table, groups[prefill[p]], groups[decode[d]]); });
}

std::int64_t second_phase(StrategyTable& table, Placement& groups, BipartiteFlow& flow) {
  std::sort(groups.begin(), groups.end(), [](const PlacedGroup& a, const PlacedGroup& b) {
    return std::tie(a.prefill, a.gpus) > std::tie(b.prefill, b.gpus);
  });
  for (PlacedGroup& group : groups) group.order = 0;
  arrange_pipelines(table, groups);
  return flow_of(table, groups, flow);
}

}  // namespace windlass::hetero
