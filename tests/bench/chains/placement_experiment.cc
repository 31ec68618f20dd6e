// Fig. 3: GBP-CR's c K against random feasible placements, with equal and with unequal memories, and against brute force.
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "planner/chain/gbp_cr.h"
#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

constexpr int kPlacements = 100;

// K of the disjoint chains that the servers form in this order until the rate is reached; 0: it cannot be reached.
int chains_in_order(const chain::Instance& instance, const std::vector<int>& order, int capacity) {
  double rate = 0, time_s = 0;
  int chains = 0, blocks = 0;
  for (const int j : order) {
    const chain::Server& server = instance.servers[static_cast<std::size_t>(j)];
    const int held = chain::blocks_for_capacity(instance, server.memory_gb, capacity);
    if (held == 0) continue;
    blocks += held;
    time_s += chain::full_service_time_s(server, held);
    if (blocks < instance.blocks) continue;
    rate += 1 / time_s;
    ++chains;
    if (rate >= chain::required_scaled_rate_per_s(instance, capacity)) return chains;
    blocks = 0;
    time_s = 0;
  }
  return 0;
}

// The optimum of Eq. 10 under equal memories, where every chain has the same number of servers: the largest total rate of K
// such groups over every choice of servers. Dynamic programming over sets of servers; at most 16 servers.
int optimum_under_equal_memories(const chain::Instance& instance, int capacity) {
  const auto servers = instance.servers.size();
  const int held = chain::blocks_for_capacity(instance, instance.servers[0].memory_gb, capacity);
  const int each = (instance.blocks + held - 1) / held;
  const std::size_t sets = std::size_t{1} << servers;
  std::vector<double> group_rate(sets, 0), best(sets, -1);
  std::vector<std::size_t> groups;
  for (std::size_t set = 1; set < sets; ++set) {
    if (std::popcount(set) != each) continue;
    double time_s = 0;
    for (std::size_t j = 0; j < servers; ++j) {
      if ((set >> j & 1U) != 0) time_s += chain::full_service_time_s(instance.servers[j], held);
    }
    group_rate[set] = 1 / time_s;
    groups.push_back(set);
  }
  best[0] = 0;
  int chains = 0;
  const double required = chain::required_scaled_rate_per_s(instance, capacity);
  std::vector<std::size_t> reached{0};
  while (!reached.empty()) {
    ++chains;
    std::vector<std::size_t> next;
    for (const std::size_t set : reached) {
      for (const std::size_t group : groups) {
        if ((set & group) != 0) continue;
        if (best[set | group] < 0) next.push_back(set | group);
        best[set | group] = std::max(best[set | group], best[set] + group_rate[group]);
        if (best[set | group] >= required) return chains;
      }
    }
    reached = std::move(next);
  }
  return 0;
}

struct Row {
  int greedy = 0;
  std::vector<int> random;  // c K of the feasible ones, ascending
};

Row run(const chain::Instance& instance, std::uint64_t seed) {
  Row row;
  const auto greedy = chain::gbp_cr(instance, kPaperCapacity);
  row.greedy = greedy.reaches_rate ? kPaperCapacity * static_cast<int>(greedy.chains.size()) : 0;
  Rng rng(seed, "random placements");
  for (int i = 0; i < kPlacements; ++i) {
    const int chains = chains_in_order(instance, random_order(rng, instance.servers.size()), kPaperCapacity);
    if (chains > 0) row.random.push_back(kPaperCapacity * chains);
  }
  std::sort(row.random.begin(), row.random.end());
  return row;
}

}  // namespace

Report placement_experiment(const Inputs& inputs) {
  Report report;
  const int seeds = inputs.scale.seeds;
  report.tables = fmt::format(
      "c K for c = {} over {} seeds; random: 100 random orders a seed, each forming chains until the rate is reached. \"never "
      "worse\": in how "
      "many seeds GBP-CR is at most the best of the feasible random ones (or nothing is feasible).\n\n"
      "| memories | lambda | GBP-CR: mean c K (feasible) | random best | random median | random worst | random feasible | "
      "never worse |\n"
      "|---|---|---|---|---|---|---|---|\n",
      kPaperCapacity, seeds);
  for (const double fast_share : {0.0, 0.2}) {
    Chart chart{fmt::format("c K of GBP-CR and of random placements, eta = {}", fast_share),
                "arrival rate (requests/s)",
                "c K",
                {},
                false};
    ChartSeries greedy{"GBP-CR", {}}, random{"random orders", {}, false};
    for (const double rate : {0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3}) {
      std::vector<Row> rows(static_cast<std::size_t>(seeds));
      for_each_index(seeds, [&](int seed) {
        const auto instance = paper_instance(inputs.network, {20, fast_share, rate}, static_cast<std::uint64_t>(seed));
        rows[static_cast<std::size_t>(seed)] = run(instance, static_cast<std::uint64_t>(seed));
      });
      double sum = 0, best = 0, median = 0, worst = 0, feasible = 0;
      int greedy_feasible = 0, random_seeds = 0, never_worse = 0;
      for (const Row& row : rows) {
        if (row.greedy > 0) {
          sum += row.greedy;
          ++greedy_feasible;
        }
        feasible += static_cast<double>(row.random.size()) / kPlacements;
        if (row.random.empty() || (row.greedy > 0 && row.greedy <= row.random.front())) ++never_worse;
        if (row.random.empty()) continue;
        ++random_seeds;
        best += row.random.front();
        median += row.random[row.random.size() / 2];
        worst += row.random.back();
      }
      if (greedy_feasible == 0) continue;
      const auto mean = [&](double total) {
        return random_seeds > 0 ? fmt::format("{:.2f}", total / random_seeds) : std::string("-");
      };
      report.tables +=
          fmt::format("| {} | {} | {:.2f} ({}/{}) | {} | {} | {} | {:.0f} % | {}/{} |\n",
                      fast_share == 0 ? "equal (20 GB)" : "20 and 40 GB", rate, sum / greedy_feasible, greedy_feasible, seeds,
                      mean(best), mean(median), mean(worst), 100 * feasible / seeds, never_worse, seeds);
      greedy.points.push_back({rate, sum / greedy_feasible, {}, {}});
      if (random_seeds > 0) random.points.push_back({rate, median / random_seeds, best / random_seeds, worst / random_seeds});
    }
    chart.series = {greedy, random};
    report.figures.push_back({fast_share == 0 ? "fig3a" : "fig3b", chart});
  }

  // Brute force: 12 servers with caches large enough that chains of 4 and of 6 servers compete for them.
  int optimal = 0, cases = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    for (const double rate : {0.3, 0.6, 0.9, 1.2, 1.5, 1.8}) {
      auto instance = paper_instance(inputs.network, {12, 0.0, rate}, static_cast<std::uint64_t>(seed));
      instance.blocks = 24;
      const int best = optimum_under_equal_memories(instance, kPaperCapacity);
      const auto greedy = chain::gbp_cr(instance, kPaperCapacity);
      if ((greedy.reaches_rate ? static_cast<int>(greedy.chains.size()) : 0) == best) ++optimal;
      ++cases;
    }
  }
  report.tables += fmt::format(
      "\nUnder equal memories (12 servers, 24 blocks, six rates, {} seeds) GBP-CR's K is the optimum over every grouping of "
      "the servers in {} of {} "
      "cases (Theorem 3.4); `tests/unit/planner/chain/gbp_cr_test.cc` does the same on 1,500 random instances.\n",
      seeds, optimal, cases);
  return report;
}

}  // namespace windlass::bench
