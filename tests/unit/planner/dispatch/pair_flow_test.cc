// Tests of the flow between running prefill and decode workers: small cases by hand, random ones against the minimum cut and
// preflow-push.
#include "planner/dispatch/pair_flow.h"

#include <cstdint>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/strategies/hexgen2/hexgen2_flow.h"
#include "tests/effort.h"

namespace windlass::hetero {
namespace {

constexpr double kAnything = std::numeric_limits<double>::infinity();
using Workers = std::vector<PairedWorker>;

double sum_of(const std::vector<PairFlow>& pairs) {
  double sum = 0;
  for (const PairFlow& pair : pairs) sum += pair.requests_per_s;
  return sum;
}

// Requests/s of each pair that has any.
std::map<std::pair<std::size_t, std::size_t>, double> by_pair(const Workers& prefill, const Workers& decode) {
  std::map<std::pair<std::size_t, std::size_t>, double> flows;
  for (const PairFlow& pair : pair_flow(prefill, decode)) flows[{pair.prefill, pair.decode}] = pair.requests_per_s;
  return flows;
}

// Given two machines with a worker of each phase, and slow or equally fast links between them; expects pairs to stay inside.
TEST(PairFlow, StaysInsideMachines) {
  for (const double between : {1.0, kAnything}) {
    const Workers prefill = {{"a", 10, kAnything, between}, {"b", 8, kAnything, between}};
    const Workers decode = {{"a", 10, kAnything, between}, {"b", 8, kAnything, between}};
    EXPECT_EQ(pair_flow(prefill, decode), (std::vector<PairFlow>{{0, 0, 10}, {1, 1, 8}})) << between;
  }
}

// Given a machine that computes more prompts than it answers, and two others that answer; expects the excess to go to them in
// proportion to their free capacity, and no more than its links between machines carry.
TEST(PairFlow, ExcessGoesToOtherMachines) {
  const Workers decode = {{"a", 10}, {"b", 10}, {"c", 20}};
  const auto flows = by_pair({{"a", 25}}, decode);
  EXPECT_DOUBLE_EQ(flows.at({0, 0}), 10);
  EXPECT_DOUBLE_EQ(flows.at({0, 1}), 5);
  EXPECT_DOUBLE_EQ(flows.at({0, 2}), 10);
  EXPECT_DOUBLE_EQ(sum_of(pair_flow({{"a", 25, kAnything, 6}}, decode)), 16);
}

// Given one machine and unequal rates; expects shares in proportion to them on the side that has more.
TEST(PairFlow, UnequalRatesShareByCapacity) {
  auto flows = by_pair({{"a", 12}}, {{"a", 10}, {"a", 20}});
  EXPECT_DOUBLE_EQ(flows.at({0, 0}), 4);
  EXPECT_DOUBLE_EQ(flows.at({0, 1}), 8);
  flows = by_pair({{"a", 30}, {"a", 60}}, {{"a", 9}});
  EXPECT_DOUBLE_EQ(flows.at({0, 0}), 3);
  EXPECT_DOUBLE_EQ(flows.at({1, 0}), 6);
}

// Given a worker without links out of its machine and without a partner there; expects it to have no share. Given one next to a
// worker that can send elsewhere; expects it to get the partner inside.
TEST(PairFlow, WithoutANetworkOnlyPartnersInsideGetRequests) {
  EXPECT_TRUE(pair_flow({{"a", 10, kAnything, 0}}, {{"b", 10}}).empty());
  EXPECT_TRUE(pair_flow({}, {{"b", 10}}).empty());
  EXPECT_TRUE(pair_flow({{"a", 0}}, {{"a", 10}}).empty());
  const auto flows = by_pair({{"a", 10, kAnything, 0}, {"a", 10}}, {{"a", 10}, {"b", 10}});
  EXPECT_EQ(flows.size(), 2U);
  EXPECT_DOUBLE_EQ(flows.at({0, 0}), 10);
  EXPECT_DOUBLE_EQ(flows.at({1, 1}), 10);
}

// Given 200 machines with a worker of each phase, half with twice the prompts and half with twice the answers; expects every
// worker to have an equal share.
TEST(PairFlow, IdenticalWorkersHaveEqualShares) {
  Workers prefill, decode;
  for (int node = 0; node < 200; ++node) {
    prefill.push_back({std::to_string(node), node < 100 ? 20.0 : 10.0});
    decode.push_back({std::to_string(node), node < 100 ? 10.0 : 20.0});
  }
  const auto pairs = pair_flow(prefill, decode);
  EXPECT_EQ(pairs.size(), 200U + 100 * 100);
  EXPECT_NEAR(sum_of(pairs), 3000, 1e-6);
  for (const PairFlow& pair : pairs) EXPECT_NEAR(pair.requests_per_s, pair.prefill == pair.decode ? 10 : 0.1, 1e-9);
}

// Whole numbers, so that values are equal often and exactly; few machines, so that workers share them.
Workers random_workers(Rng& rng, bool unlimited_links) {
  Workers workers;
  for (std::int64_t n = rng.integer(0, 5); n > 0; --n) {
    const auto link = [&] {
      const std::int64_t draw = rng.integer(0, 5);
      return draw == 0 ? 0.0 : draw == 1 || unlimited_links ? kAnything : static_cast<double>(rng.integer(1, 30));
    };
    workers.push_back(
        {std::string(1, static_cast<char>('a' + rng.integer(0, 2))), static_cast<double>(rng.integer(0, 30)), link(), link()});
  }
  return workers;
}

// The minimum capacity of any cut: the inside of each machine and the network, on either side; then each worker where it is
// cheaper.
double least_cut(const Workers& prefill, const Workers& decode) {
  double least = kAnything;
  for (std::uint32_t sources = 0; sources < 16; ++sources) {  // the machines a, b, c and the network on the source's side
    const auto at_source = [&](std::uint32_t place) { return (sources >> place & 1U) != 0; };
    const auto inside = [&](const PairedWorker& worker) { return at_source(static_cast<std::uint32_t>(worker.node[0] - 'a')); };
    double cut = 0;
    for (const PairedWorker& worker : prefill) {
      const double links = (inside(worker) ? 0 : worker.within_per_s) + (at_source(3) ? 0 : worker.between_per_s);
      cut += std::min(worker.requests_per_s, links);
    }
    for (const PairedWorker& worker : decode) {
      const double links = (inside(worker) ? worker.within_per_s : 0) + (at_source(3) ? worker.between_per_s : 0);
      cut += std::min(worker.requests_per_s, links);
    }
    least = std::min(least, cut);
  }
  return least;
}

// Given random cases; expects the value of the minimum cut, a flow within every capacity, as much inside the machines as
// without a network, and equal shares for identical workers.
TEST(PairFlow, IsTheMaximumWithTheMostInside) {
  for (std::uint64_t seed = 0; seed < effort(500U, 5000U); ++seed) {
    Rng rng(seed, "pairs");
    const Workers prefill = random_workers(rng, false), decode = random_workers(rng, false);
    const auto pairs = pair_flow(prefill, decode);
    ASSERT_NEAR(sum_of(pairs), least_cut(prefill, decode), 1e-9) << seed;
    struct Loads {
      double all = 0, between = 0, same_node = 0;
    };
    std::vector<Loads> out(prefill.size()), in(decode.size());
    double same_node = 0;
    for (const PairFlow& pair : pairs) {
      ASSERT_GT(pair.requests_per_s, 0);
      const bool same = prefill.at(pair.prefill).node == decode.at(pair.decode).node;
      if (same) same_node += pair.requests_per_s;
      for (Loads* loads : {&out[pair.prefill], &in[pair.decode]}) {
        loads->all += pair.requests_per_s;
        (same ? loads->same_node : loads->between) += pair.requests_per_s;
      }
    }
    const auto check = [&](const Workers& workers, const std::vector<Loads>& loads) {
      for (std::size_t i = 0; i < workers.size(); ++i) {
        ASSERT_LE(loads[i].all, workers[i].requests_per_s + 1e-9) << seed;
        ASSERT_LE(loads[i].between, workers[i].between_per_s + 1e-9) << seed;
        // Flow to the own machine beyond its internal links goes over the network and back.
        ASSERT_LE(loads[i].same_node + loads[i].between, workers[i].within_per_s + workers[i].between_per_s + 1e-9) << seed;
        for (std::size_t j = 0; j < i; ++j) {
          const PairedWorker &a = workers[i], &b = workers[j];
          const bool alike = a.node == b.node && a.requests_per_s == b.requests_per_s && a.within_per_s == b.within_per_s &&
                             a.between_per_s == b.between_per_s;
          ASSERT_NEAR(loads[i].all, alike ? loads[j].all : loads[i].all, 1e-9) << seed;
        }
      }
    };
    check(prefill, out);
    check(decode, in);
    Workers prefill_alone = prefill, decode_alone = decode;
    for (Workers* workers : {&prefill_alone, &decode_alone}) {
      for (PairedWorker& worker : *workers) worker.between_per_s = 0;
    }
    ASSERT_GE(same_node, least_cut(prefill_alone, decode_alone) - 1e-9) << seed;
  }
}

// Given random cases in which a link carries anything or nothing, so that pairs do not share it; expects the value of
// preflow-push on HexGen-2's own network.
TEST(PairFlow, EqualsHexGen2IfNoLinkIsShared) {
  for (std::uint64_t seed = 0; seed < effort(200U, 2000U); ++seed) {
    Rng rng(seed, "unshared");
    const Workers prefill = random_workers(rng, true), decode = random_workers(rng, true);
    FlowNetwork network;
    for (const PairedWorker& p : prefill) network.prefill.push_back(flow_units(p.requests_per_s));
    for (const PairedWorker& d : decode) network.decode.push_back(flow_units(d.requests_per_s));
    for (const PairedWorker& p : prefill) {
      for (const PairedWorker& d : decode) {
        const double inside = p.node == d.node ? std::min(p.within_per_s, d.within_per_s) : 0;
        network.edges.push_back(flow_units(std::max(inside, std::min(p.between_per_s, d.between_per_s))));
      }
    }
    const double value = static_cast<double>(preflow_push(network).value) / kFlowUnitsPerRequest;
    ASSERT_NEAR(sum_of(pair_flow(prefill, decode)), value, 1e-6) << seed;
  }
}

}  // namespace
}  // namespace windlass::hetero
