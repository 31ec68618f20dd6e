// Fig. 4: how many job servers GCA needs for a required rate, compared with disjoint chains, a lower bound and the integer
// program.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/chain/cache_ilp.h"
#include "planner/chain/gbp_cr.h"
#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

struct Row {
  double disjoint = -1, greedy = -1, optimal = -1, bound = -1;  // job servers; -1: the rate cannot be reached
};

// GCA's chains, fastest first; the last one only as far as needed.
double job_servers(const std::vector<chain::ServerChain>& chains, double rate_per_s) {
  double taken = 0;
  for (const chain::ServerChain& chain : chains) {
    const double needed = std::ceil(rate_per_s * chain.service_time_s * (1 - 1e-12));
    if (needed <= chain.capacity) return taken + needed;
    taken += chain.capacity;
    rate_per_s -= chain.capacity / chain.service_time_s;
  }
  return -1;
}

Row run(const chain::Instance& instance, const chain::Composition& all, double required_per_s) {
  Row row;
  double rate = 0;
  for (std::size_t k = 0; k < all.disjoint_chains.size() && row.disjoint < 0; ++k) {
    double time_s = 0;
    for (const int j : all.disjoint_chains[k]) {
      const chain::Server& server = instance.servers[static_cast<std::size_t>(j)];
      time_s += chain::full_service_time_s(server, all.placement[static_cast<std::size_t>(j)].blocks);
    }
    rate += kPaperCapacity / time_s;
    if (rate >= required_per_s) row.disjoint = kPaperCapacity * static_cast<double>(k + 1);
  }
  row.greedy = job_servers(all.chains, required_per_s);
  row.bound = std::ceil(required_per_s * all.chains.front().service_time_s);
  const auto optimal = chain::optimal_cache_allocation(instance, all.placement, all.chains, required_per_s);
  if (optimal.ok() && optimal->feasible && optimal->proved) row.optimal = static_cast<double>(optimal->total_capacity);
  return row;
}

}  // namespace

Report cache_experiment(const Inputs& inputs) {
  Report report;
  const int seeds = inputs.scale.seeds;
  report.tables = fmt::format(
      "Mean number of job servers over {} seeds; every server placed by GBP-CR with c = {}; lambda as a share of GCA's total "
      "rate nu, required "
      "rate lambda / 0.7. In brackets: seeds in which the rate can be reached.\n\n"
      "| lambda / nu | c K(c) | GCA | optimal ILP | lower bound | GCA = ILP |\n|---|---|---|---|---|---|\n",
      seeds, kPaperCapacity);
  Chart chart{"Job servers needed", "arrival rate (share of nu)", "sum of capacities", {}, false};
  ChartSeries disjoint{"c K(c)", {}}, greedy{"GCA", {}}, optimal{"optimal ILP", {}}, bound{"lower bound", {}};
  for (const double share : {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7}) {
    std::vector<Row> rows(static_cast<std::size_t>(seeds));
    for_each_index(seeds, [&](int seed) {
      const auto instance = paper_instance(inputs.network, {}, static_cast<std::uint64_t>(seed));
      const auto all = compose_all(instance, kPaperCapacity);
      // At 70 % the required rate is nu itself; rounding must not make it unreachable.
      rows[static_cast<std::size_t>(seed)] = run(instance, all, share * all.total_service_rate_per_s / 0.7 * (1 - 1e-9));
    });
    const auto column = [&](double Row::*field, ChartSeries& series) {
      std::vector<double> values;
      for (const Row& row : rows) {
        if (row.*field >= 0) values.push_back(row.*field);
      }
      if (values.empty()) return std::string("out of reach");
      series.points.push_back(point_of(share, values));
      return fmt::format("{:.2f} ({})", series.points.back().y, values.size());
    };
    int equal = 0;
    for (const Row& row : rows) equal += row.greedy >= 0 && row.greedy == row.optimal ? 1 : 0;
    report.tables +=
        fmt::format("| {:.0f} % | {} | {} | {} | {} | {}/{} |\n", 100 * share, column(&Row::disjoint, disjoint),
                    column(&Row::greedy, greedy), column(&Row::optimal, optimal), column(&Row::bound, bound), equal, seeds);
  }
  chart.series = {disjoint, greedy, optimal, bound};
  report.figures.push_back({"fig4", chart});
  return report;
}

}  // namespace windlass::bench
