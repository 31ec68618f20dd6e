// Tests HexGen-2's flow: Boost's preflow-push and the search's own algorithm against each other and against the minimum cut;
// the first phase; pipeline orders.
#include "planner/strategies/hexgen2/hexgen2_flow.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "planner/strategies/hexgen2/hexgen2_partition.h"
#include "planner/strategies/hexgen2/hexgen2_placement.h"
#include "planner/strategies/hexgen2/hexgen2_refine.h"
#include "tests/effort.h"
#include "tests/unit/planner/strategies/hexgen2/clusters.h"

namespace windlass::hetero {
namespace {

FlowNetwork random_network(Rng& rng) {
  FlowNetwork network;
  const std::int64_t scale = rng.integer(0, 1) == 0 ? 5 : 50'000'000'000;
  for (std::int64_t n = rng.integer(0, 6); n > 0; --n) network.prefill.push_back(rng.integer(0, 3 * scale));
  for (std::int64_t n = rng.integer(0, 6); n > 0; --n) network.decode.push_back(rng.integer(0, 3 * scale));
  for (std::size_t n = network.prefill.size() * network.decode.size(); n > 0; --n) {
    network.edges.push_back(rng.integer(0, 3) == 0 ? 0 : rng.integer(0, 2 * scale));
  }
  return network;
}

// The minimum cut: over all choices of prefill groups on the source's side, with each decode group where it is cheaper.
std::int64_t least_cut(const FlowNetwork& network) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const std::size_t decodes = network.decode.size();
  for (std::uint32_t side = 0; side < 1U << network.prefill.size(); ++side) {
    std::int64_t cut = 0;
    for (std::size_t p = 0; p < network.prefill.size(); ++p) cut += (side >> p & 1U) == 0 ? network.prefill[p] : 0;
    for (std::size_t d = 0; d < decodes; ++d) {
      std::int64_t edges = 0;
      for (std::size_t p = 0; p < network.prefill.size(); ++p)
        edges += (side >> p & 1U) != 0 ? network.edges[p * decodes + d] : 0;
      cut += std::min(edges, network.decode[d]);
    }
    least = std::min(least, cut);
  }
  return least;
}

// Given random networks; expects both algorithms to give the capacity of the minimum cut, and preflow-push a flow that respects
// every capacity.
TEST(Hexgen2Flow, IsTheLeastCut) {
  BipartiteFlow bipartite;
  for (std::uint64_t seed = 0; seed < effort(300U, 3000U); ++seed) {
    Rng rng(seed, "network");
    const FlowNetwork network = random_network(rng);
    const std::int64_t least = least_cut(network);
    const Flow flow = preflow_push(network);
    ASSERT_EQ(flow.value, least) << seed;
    const std::size_t decodes = network.decode.size();
    ASSERT_EQ(bipartite.solve(network.prefill, network.decode,
                              [&](std::size_t p, std::size_t d) { return network.edges[p * decodes + d]; }),
              least)
        << seed;
    std::vector<std::int64_t> out(network.prefill.size(), 0), in(decodes, 0);
    for (std::size_t p = 0; p < network.prefill.size(); ++p) {
      for (std::size_t d = 0; d < decodes; ++d) {
        const std::int64_t amount = flow.edges[p * decodes + d];
        ASSERT_GE(amount, 0);
        ASSERT_LE(amount, network.edges[p * decodes + d]);
        out[p] += amount;
        in[d] += amount;
      }
    }
    for (std::size_t p = 0; p < out.size(); ++p) ASSERT_LE(out[p], network.prefill[p]);
    for (std::size_t d = 0; d < decodes; ++d) ASSERT_LE(in[d], network.decode[d]);
    ASSERT_EQ(std::accumulate(out.begin(), out.end(), std::int64_t{0}), flow.value);
    const auto left = [](const std::vector<std::int64_t>& rest) {
      return std::accumulate(rest.begin(), rest.end(), std::int64_t{0});
    };
    ASSERT_EQ(left(network.prefill) - left(bipartite.prefill_left()), least);
    ASSERT_EQ(left(network.decode) - left(bipartite.decode_left()), least);
  }
}

// Given a prefill and a decode group on the same two machines; expects pipeline orders that keep each layer on its machine, so
// the transfer uses internal links only.
TEST(Hexgen2Placement, OrdersPipelinesForTheTransfer) {
  const GpuCluster cluster = bench::cluster_of({{"a100-80gb", 4}, {"a100-80gb", 4}});
  const InferenceTask task = make_task("llama2-70b", bench::kHphd);
  StrategyTable table(cluster, task);
  Placement groups = {place(table, {{0, 2}, {1, 2}}, true), place(table, {{0, 2}, {1, 2}}, false)};
  ASSERT_EQ(groups[0].strategy().orders.size(), 2U);
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (std::size_t a = 0; a < 2; ++a) {
    for (std::size_t b = 0; b < 2; ++b) {
      groups[0].order = a, groups[1].order = b;
      least = std::min(least, kv_transfer_s(table, groups[0], groups[1]));
      most = std::max(most, kv_transfer_s(table, groups[0], groups[1]));
    }
  }
  EXPECT_GT(most, 5 * least);
  BipartiteFlow flow;
  const std::int64_t value = second_phase(table, groups, flow);
  const bool first_prefills = groups[0].prefill;
  EXPECT_DOUBLE_EQ(kv_transfer_s(table, groups[first_prefills ? 0 : 1], groups[first_prefills ? 1 : 0]), least);
  EXPECT_GT(value, 0);
}

// Given stages that share layers in pairs; expects the time of the slowest pair: here half of the model over one connection
// between machines.
TEST(Hexgen2Placement, TransferTakesTheSlowestStagePair) {
  const GpuCluster cluster = bench::cluster_of({{"a100-80gb", 4}, {"l40", 4}});
  const InferenceTask task = make_task("opt-30b", bench::kHpld);
  StrategyTable table(cluster, task);
  const PlacedGroup from = place(table, {{0, 1}}, true), to = place(table, {{1, 4}}, false);
  double slowest = 0;
  for (const OrderedStage& stage : to.stages()) {
    slowest = std::max(slowest, kv_transfer_s(task, cluster.link(0, 1), stage.layers, 1));
  }
  EXPECT_DOUBLE_EQ(kv_transfer_s(table, from, to), slowest);
}

// Given guided and random exchanges between few and many groups, on links that limit the flow and on links that never do;
// expects the flow that the search kept step by step to be that of its groups from scratch, by preflow-push.
TEST(Hexgen2Refine, KeepsTheFlowOfItsGroups) {
  for (std::uint64_t seed = 0; seed < effort(12U, 80U); ++seed) {
    RandomCase test = random_case(seed, 8, 64);
    const double faster[] = {1000, 10, 1, 0.03};
    for (auto& [pair, link] : test.cluster.between) link.bytes_per_s *= faster[seed % 4];
    StrategyTable table(test.cluster, test.task);
    const int count = std::clamp(groups_by_memory(test.task, test.cluster), 2, test.cluster.gpus());
    RefineOptions options;
    options.guided = seed % 3 != 0;
    options.may_empty = seed % 8 < 4;
    options.rounds = options.guided ? 5 : 2000;
    options.shake_until = options.max_steps = 20'000;
    const Refined refined = refine(table, first_phase(table, count), options, Rng(seed, "refine"));
    EXPECT_EQ(refined.flow, preflow_push(network_of(table, refined.groups).flow).value) << seed;
  }
}

// Given two pairs of machines with fast links inside and slow links between them, and two groups; expects no group across both
// pairs, and groups of similar memory.
TEST(Hexgen2Partition, CutsWhereBandwidthIsLeast) {
  GpuCluster cluster = bench::cluster_of({{"a100-80gb", 2}, {"a100-80gb", 2}, {"a100-80gb", 2}, {"a100-80gb", 2}});
  for (auto& [pair, link] : cluster.between) {
    const bool near = pair == std::pair(0, 2) || pair == std::pair(1, 3);
    link = near ? Link{50e9, 5e-6} : Link{1e9, 5e-6};
  }
  const LinkTable links(cluster);
  const std::vector<Composition> groups = initial_partition(cluster, links, 2);
  ASSERT_EQ(groups.size(), 2U);
  for (const Composition& group : groups) {
    EXPECT_TRUE((group == Composition{{0, 2}, {2, 2}}) || (group == Composition{{1, 2}, {3, 2}}));
  }
  const std::vector<Composition> order = initial_partition(cluster, links, 4);
  for (const Composition& group : order) EXPECT_EQ(group.size(), 1U);
}

// Given random clusters; expects every GPU in one group, none empty, groups whose memory differs by at most half a group, and
// both phases; also with one machine more than the dense eigensolver handles.
TEST(Hexgen2Partition, UsesEveryGpuOnce) {
  for (std::uint64_t seed = 0; seed < effort(15U, 60U); ++seed) {
    RandomCase test = random_case(seed, 4, 64);
    if (seed == 0) {
      std::vector<std::pair<std::string, int>> machines(300, {"a100-80gb", 2});
      test.cluster = bench::cluster_of(machines);
    }
    StrategyTable table(test.cluster, test.task);
    const int count = std::clamp(groups_by_memory(test.task, test.cluster), 2, test.cluster.gpus());
    const Placement placement = first_phase(table, count);
    ASSERT_EQ(static_cast<int>(placement.size()), count);
    std::vector<int> used(test.cluster.nodes.size(), 0);
    int prefill = 0;
    for (const PlacedGroup& group : placement) {
      EXPECT_FALSE(group.gpus.empty());
      prefill += group.prefill ? 1 : 0;
      for (const NodeShare& share : group.gpus) used[static_cast<std::size_t>(share.node)] += share.gpus;
    }
    for (std::size_t node = 0; node < used.size(); ++node) EXPECT_EQ(used[node], test.cluster.nodes[node].gpus) << seed;
    EXPECT_GT(prefill, 0);
    EXPECT_LT(prefill, count);
  }
}

// Given Kernighan-Lin's start, a random partition; expects the first phase to keep more bandwidth inside groups, on average by
// far.
TEST(Hexgen2Partition, KeepsBandwidthInside) {
  double ours = 0, random = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const RandomCase test = random_case(seed, 16, 40);
    StrategyTable table(test.cluster, test.task);
    const int count = std::clamp(groups_by_memory(test.task, test.cluster), 2, test.cluster.gpus());
    Rng rng(seed, "random");
    std::vector<Composition> dealt;
    for (PlacedGroup& group : random_placement(table, count, rng)) dealt.push_back(std::move(group.gpus));
    ours += bandwidth_inside(table.links(), initial_partition(test.cluster, table.links(), count));
    random += bandwidth_inside(table.links(), dealt);
  }
  EXPECT_GT(ours, 2 * random);
}

}  // namespace
}  // namespace windlass::hetero
