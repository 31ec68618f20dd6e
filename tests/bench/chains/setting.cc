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

namespace {

// The first of a random order of all places is the orchestrator, the next ones are the servers.
std::vector<std::size_t> paper_places(const RipeNetwork& network, int servers, std::uint64_t seed) {
  Rng rng(seed, "places");
  const std::vector<int> order = random_order(rng, network.size());
  return {order.begin(), order.begin() + servers + 1};
}

std::int64_t warm_up_requests(const Scale& scale) { return scale.warm_up ? scale.requests / 10 : 0; }

}  // namespace

chain::Instance paper_instance(const RipeNetwork& network, const PaperSetting& setting, std::uint64_t seed) {
  const auto places = paper_places(network, setting.servers, seed);
  chain::Instance instance{70, 1.32, 0.11, setting.arrival_rate_per_s, 0.7, {}};
  // Places are random, so the first servers may as well be the fast ones.
  const auto fast = static_cast<int>(std::lround(setting.fast_share * setting.servers));
  for (int j = 0; j < setting.servers; ++j) {
    const double rtt_s = network.rtt_s(places[0], places[static_cast<std::size_t>(j) + 1]);
    const bool is_fast = j < fast;
    instance.servers.push_back(
        chain::Server{fmt::format("s{}", j), is_fast ? 40.0 : 20.0, rtt_s + 0.018, is_fast ? 0.109 : 0.175, 1, {}});
  }
  return instance;
}

chain::PetalsOptions paper_petals(const RipeNetwork& network, int servers, std::uint64_t seed) {
  const auto places = paper_places(network, servers, seed);
  chain::PetalsOptions options;
  chain::PetalsPings pings;
  for (std::size_t j = 1; j < places.size(); ++j) {
    pings.client_s.push_back(network.rtt_s(places[0], places[j]));
    pings.server_s.emplace_back();
    for (std::size_t to = 1; to < places.size(); ++to) pings.server_s.back().push_back(network.rtt_s(places[j], places[to]));
  }
  options.pings = std::move(pings);
  Rng rng(seed, "joining");
  options.join_order = random_order(rng, static_cast<std::size_t>(servers));
  return options;
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
  options.warm_up_requests = warm_up_requests(scale);
  options.max_requests = scale.requests + options.warm_up_requests;
  return sim::simulate_chains(chains, source, *dispatch, options);
}

std::optional<double> simulate_routed(const chain::Instance& instance, const chain::Placement& placement,
                                      const sim::SessionPolicy& policy, const std::vector<long>& slots, const Scale& scale,
                                      std::uint64_t seed) {
  workload::SyntheticSource source({instance.arrival_rate_per_s, 1, seed});
  sim::SessionSimulationOptions options;
  options.warm_up_requests = warm_up_requests(scale);
  options.max_requests = scale.requests + options.warm_up_requests;
  options.slots = slots;
  const auto result = sim::simulate_sessions(instance, placement, policy, source, options);
  return result.ok() ? std::optional(result->response.mean_s) : std::nullopt;
}

std::optional<double> simulate_petals(const chain::Instance& instance, const chain::PetalsOptions& options, const Scale& scale,
                                      std::uint64_t seed, sim::SessionRouting routing, sim::StartRule start) {
  const auto placement = chain::petals_placement(instance, options);
  sim::SessionPolicy policy;
  policy.routing = routing;
  policy.start = start;
  policy.petals = options;
  return simulate_routed(instance, placement, policy, chain::petals_cache_slots(instance, placement, options), scale, seed);
}

chain::PetalsOptions with_block_cap(const chain::Instance& instance, chain::PetalsOptions options) {
  constexpr int kLimit = 4;
  constexpr double kFastRate = 20829.38, kSlowRate = 2 * 2757.72;  // tokens/s of a block (throughput_v5.json)
  for (std::size_t j = 0; j < instance.servers.size(); ++j) {
    const int blocks = chain::petals_blocks(instance, static_cast<int>(j), options);
    const bool fast = instance.servers[j].memory_gb > 20;
    options.blocks.push_back(fast ? blocks : std::min(blocks, kLimit));
    options.block_rates.push_back(fast ? kFastRate : kSlowRate);
  }
  return options;
}

std::string of_seeds(const std::vector<double>& values, int seeds) {
  if (values.empty()) return "no full chain";
  return with_interval(values, 1) +
         (static_cast<int>(values.size()) < seeds ? fmt::format(" ({} seeds)", values.size()) : std::string());
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
