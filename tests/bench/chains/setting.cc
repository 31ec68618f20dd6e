// The setting, runs and output that the experiments share.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "planner/chain/gbp_cr.h"
#include "planner/sim/chain_simulation.h"
#include "planner/workload/synthetic_source.h"
#include "tests/bench/chains/experiments.h"

namespace windlass::bench {

chain::Instance paper_instance(const RipeNetwork& network, const PaperSetting& setting, std::uint64_t seed) {
  Rng rng(seed, "places");
  // The first of a random order of all places is the orchestrator, the next ones are the servers.
  const std::vector<int> order = random_order(rng, network.size());
  const auto place = [&](int i) { return static_cast<std::size_t>(order[static_cast<std::size_t>(i)]); };
  chain::Instance instance{70, 1.32, 0.11, setting.arrival_rate_per_s, 0.7, {}};
  // Places are random, so the first servers may as well be the fast ones.
  const auto fast = static_cast<int>(std::lround(setting.fast_share * setting.servers));
  for (int j = 0; j < setting.servers; ++j) {
    const double rtt_s = network.rtt_s(place(0), place(j + 1));
    const bool is_fast = j < fast;
    instance.servers.push_back(
        chain::Server{fmt::format("s{}", j), is_fast ? 40.0 : 20.0, rtt_s + 0.018, is_fast ? 0.109 : 0.175, 1, {}});
  }
  return instance;
}

chain::Composition compose_all(const chain::Instance& instance, int capacity) {
  auto disjoint = chain::gbp_cr(instance, capacity, std::numeric_limits<double>::infinity());
  chain::Composition composition = chain::compose_on(instance, std::move(disjoint.placement));
  composition.capacity = capacity;
  composition.disjoint_chains = std::move(disjoint.chains);
  return composition;
}

sim::SimulationResult simulate(const chain::Instance& instance, const chain::Composition& composition,
                               dispatch::PolicyKind policy, double rate_per_s, const Scale& scale, std::uint64_t seed) {
  const auto chains = sim::simulated_chains(instance, composition.chains);
  workload::SyntheticSource source({rate_per_s, 1, seed});
  const auto dispatch = dispatch::make_policy(policy, Rng(seed, "policy"));
  sim::ChainSimulationOptions options;
  options.warm_up_requests = scale.requests / 10;
  options.max_requests = scale.requests + options.warm_up_requests;
  return sim::simulate_chains(chains, source, *dispatch, options);
}

std::vector<int> random_order(Rng& rng, std::size_t count) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = count - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i)))]);
  }
  return order;
}

void for_each_index(int count, const std::function<void(int)>& body) {
  std::atomic<int> next{0};
  std::vector<std::jthread> threads;
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  for (unsigned i = 0; i < cores; ++i) {
    threads.emplace_back([&] {
      for (int index = next++; index < count; index = next++) body(index);
    });
  }
}

std::string with_interval(const std::vector<double>& values, int decimals) {
  if (values.empty()) return "-";
  const sim::MeanEstimate estimate = sim::mean_over_replications(values);
  if (!estimate.half_width) return fmt::format("{:.{}f}", estimate.mean, decimals);
  return fmt::format("{:.{}f} ± {:.{}f}", estimate.mean, decimals, *estimate.half_width, decimals);
}

ChartPoint point_of(double x, const std::vector<double>& values) {
  const sim::MeanEstimate estimate = sim::mean_over_replications(values);
  ChartPoint point{x, estimate.mean, {}, {}};
  if (estimate.half_width) {
    point.low = estimate.mean - *estimate.half_width;
    point.high = estimate.mean + *estimate.half_width;
  }
  return point;
}

}  // namespace windlass::bench
