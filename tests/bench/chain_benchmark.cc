// Benchmarks of server chains: composing, one dispatch decision, simulated requests; each over the sizes that it depends on.
// `scripts/bench chains` runs them and writes docs/benchmarks.md.
#include <algorithm>
#include <string>

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "planner/base/rng.h"
#include "planner/chain/compose.h"
#include "planner/dispatch/policies.h"
#include "planner/queueing/chain_bounds.h"
#include "planner/sim/chain_simulation.h"
#include "planner/workload/synthetic_source.h"

namespace windlass {
namespace {

// Servers as in the papers' setting: a fifth with 40 GB, or all memories different; delays of 20 to 80 ms. The demand is about
// `load` of what all servers together can serve.
chain::Instance instance_of(int servers, int blocks, bool different_memories, double load) {
  Rng rng(1, "benchmark");
  chain::Instance instance{blocks, 1.32, 0.11, 0, 0.7, {}};
  double blocks_per_s = 0;
  for (int j = 0; j < servers; ++j) {
    const bool fast = rng.uniform() < 0.2;
    const double memory_gb = different_memories ? rng.uniform(10, 80) : (fast ? 40 : 20);
    instance.servers.push_back({"s" + std::to_string(j), memory_gb, rng.uniform(0.02, 0.08), fast ? 0.109 : 0.175, 1, {}});
    // About half of the memory holds caches; each holds a block of a request for the request's whole time.
    blocks_per_s += memory_gb / 2 / instance.cache_gb / (blocks * instance.servers.back().block_s) / blocks;
  }
  instance.arrival_rate_per_s = load * blocks_per_s;
  return instance;
}

void compose_auto(benchmark::State& state, bool different_memories, chain::Tuning tuning) {
  const auto instance = instance_of(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), different_memories,
                                    static_cast<double>(state.range(2)) / 100);
  std::size_t chains = 0;
  double load = 0;
  for (auto _ : state) {
    const auto composed = chain::compose(instance, tuning);
    benchmark::DoNotOptimize(composed.ok());
    if (composed.ok()) {
      chains = composed->chains.size();
      load = instance.arrival_rate_per_s / composed->total_service_rate_per_s;
    }
  }
  state.counters["chains"] = static_cast<double>(chains);
  state.counters["load"] = load;
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int load : {5, 60}) {
    for (const auto& [servers, blocks] : {std::pair{20, 70}, {100, 70}, {1000, 32}, {1000, 126}, {4000, 126}})
      benchmark->Args({servers, blocks, load});
  }
  benchmark->ArgNames({"J", "L", "load%"})->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(compose_auto, two_memories, false, chain::Tuning::kLowerBound)->Apply(sizes);
BENCHMARK_CAPTURE(compose_auto, different_memories, true, chain::Tuning::kLowerBound)->Apply(sizes);
// The case in which the search's bounds help least: more demand than any c can serve, so that it maximises the rate; and the
// upper bound.
BENCHMARK_CAPTURE(compose_auto, different_memories_overloaded, true, chain::Tuning::kLowerBound)
    ->Args({20, 70, 300})
    ->Args({1000, 126, 300})
    ->ArgNames({"J", "L", "load%"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(compose_auto, different_memories_upper_bound, true, chain::Tuning::kUpperBound)
    ->Args({20, 70, 60})
    ->Args({1000, 126, 60})
    ->ArgNames({"J", "L", "load%"})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(compose_auto, upper_bound, false, chain::Tuning::kUpperBound)
    ->Args({20, 70, 60})
    ->Args({1000, 126, 60})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(compose_auto, surrogate, false, chain::Tuning::kSurrogate)
    ->Args({20, 70, 60})
    ->Args({1000, 126, 60})
    ->Unit(benchmark::kMicrosecond);

// The same result without the search's shortcuts: every c is composed completely. Baseline of the ratio for compose_auto.
void compose_trying_every_capacity(benchmark::State& state) {
  const auto instance = instance_of(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), false,
                                    static_cast<double>(state.range(2)) / 100);
  for (auto _ : state) {
    double best_s = 1e300;
    for (int c = 1; c <= chain::max_capacity(instance); ++c) {
      const auto composed = chain::compose(instance, c);
      if (composed.ok() && composed->stable) best_s = std::min(best_s, *composed->mean_response_lower_s);
    }
    benchmark::DoNotOptimize(best_s);
  }
}
BENCHMARK(compose_trying_every_capacity)
    ->Args({20, 70, 60})
    ->Args({1000, 126, 60})
    ->ArgNames({"J", "L", "load%"})
    ->Unit(benchmark::kMicrosecond);

// JFFC by definition: the fastest free chain, found by scanning all chains. Baseline of the ratio for decide/jffc.
class ScanningJffc final : public dispatch::DispatchPolicy {
 public:
  void reset(std::span<const dispatch::ChainState> chains) override { chains_.assign(chains.begin(), chains.end()); }
  void update(std::size_t index, const dispatch::ChainState& state) override { chains_[index] = state; }
  [[nodiscard]] std::optional<std::size_t> choose() override {
    std::optional<std::size_t> best;
    for (std::size_t k = 0; k < chains_.size(); ++k) {
      if (!chains_[k].has_free_slot()) continue;
      if (!best || chains_[k].service_rate_per_s > chains_[*best].service_rate_per_s) best = k;
    }
    return best;
  }

 private:
  std::vector<dispatch::ChainState> chains_;
};

// One decision: an arrival (choose and take a slot) or a departure (release it and ask for the head of the queue), mixed at
// random at a load where most chains are full.
void decide_with(benchmark::State& state, dispatch::DispatchPolicy* policy) {
  Rng rng(2, "chains");
  const auto count = static_cast<std::size_t>(state.range(0));
  std::vector<dispatch::ChainState> chains(count);
  for (auto& chain : chains) chain = {rng.uniform(0.05, 1), static_cast<int>(rng.integer(1, 16)), 0, false};
  policy->reset(chains);
  // Events are drawn beforehand, so that drawing does not count as the policy's time.
  constexpr std::size_t kEvents = 1 << 16;
  std::vector<std::uint32_t> draws(kEvents);
  for (auto& draw : draws) draw = static_cast<std::uint32_t>(rng.bits());
  std::vector<std::uint32_t> running;
  std::size_t event = 0, slots = 0;
  for (const auto& chain : chains) slots += static_cast<std::size_t>(chain.capacity);
  const std::size_t wanted = slots * 8 / 10;
  const auto step = [&](std::uint32_t draw, bool arrival) {
    if (arrival) {
      if (const auto chosen = policy->choose()) {
        ++chains[*chosen].in_flight;
        policy->update(*chosen, chains[*chosen]);
        running.push_back(static_cast<std::uint32_t>(*chosen));
      }
      return;
    }
    const std::size_t at = draw % running.size();
    const std::uint32_t ended = running[at];
    running[at] = running.back();
    running.pop_back();
    --chains[ended].in_flight;
    policy->update(ended, chains[ended]);
  };
  while (running.size() < wanted) step(0, true);
  for (auto _ : state) {
    const std::uint32_t draw = draws[event++ % kEvents];
    step(draw >> 1U, running.size() < wanted || (running.size() < wanted + 64 && (draw & 1U) != 0));
  }
  state.SetItemsProcessed(state.iterations());
}
void decide(benchmark::State& state, dispatch::PolicyKind kind) {
  decide_with(state, dispatch::make_policy(kind, Rng(3, "policy")).get());
}
void decide_scanning_all(benchmark::State& state) {
  ScanningJffc policy;
  decide_with(state, &policy);
}
BENCHMARK_CAPTURE(decide, jffc, dispatch::PolicyKind::kJffc)
    ->Arg(10)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(10'000)
    ->Arg(100'000)
    ->ArgName("chains");
BENCHMARK(decide_scanning_all)->Arg(100)->Arg(10'000)->ArgName("chains");
BENCHMARK_CAPTURE(decide, jsq, dispatch::PolicyKind::kJsq)->Arg(100)->Arg(10'000)->ArgName("chains");
BENCHMARK_CAPTURE(decide, sed, dispatch::PolicyKind::kSed)->Arg(100)->Arg(10'000)->ArgName("chains");
BENCHMARK_CAPTURE(decide, sa_jsq, dispatch::PolicyKind::kSaJsq)->Arg(100)->Arg(10'000)->ArgName("chains");
BENCHMARK_CAPTURE(decide, jiq, dispatch::PolicyKind::kJiq)->Arg(100)->Arg(10'000)->ArgName("chains");

// Requests simulated per second (items/s), Poisson arrivals at 70 % load, exponential sizes.
void simulate(benchmark::State& state, dispatch::PolicyKind kind) {
  Rng rng(4, "chains");
  std::vector<sim::SimulatedChain> chains(static_cast<std::size_t>(state.range(0)));
  double rate = 0;
  for (auto& chain : chains) {
    chain = {rng.uniform(5, 20), static_cast<int>(rng.integer(1, 16)), {}};
    rate += chain.capacity / chain.service_time_s;
  }
  sim::ChainSimulationOptions options;
  options.max_requests = state.range(1);
  for (auto _ : state) {
    workload::SyntheticSource source({0.7 * rate, 1, 5});
    const auto policy = dispatch::make_policy(kind, Rng(6, "policy"));
    benchmark::DoNotOptimize(sim::simulate_chains(chains, source, *policy, options).response.mean_s);
  }
  state.SetItemsProcessed(state.iterations() * state.range(1));
  rusage usage{};
  getrusage(RUSAGE_SELF,
            &usage);  // the process's maximum so far: it does not change if no run needs more than earlier ones
  state.SetLabel(std::to_string(usage.ru_maxrss / 1024) + " MiB");
}
BENCHMARK_CAPTURE(simulate, jffc, dispatch::PolicyKind::kJffc)
    ->Args({10, 1'000'000})
    ->Args({100, 1'000'000})
    ->Args({100, 10'000'000})
    ->Args({1000, 1'000'000})
    ->Args({10'000, 1'000'000})
    ->ArgNames({"chains", "requests"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate, jsq, dispatch::PolicyKind::kJsq)
    ->Args({100, 1'000'000})
    ->ArgNames({"chains", "requests"})
    ->Unit(benchmark::kMillisecond);

// The lower bound of Theorem 3.7 by total capacity, near full load, where every term matters.
void lower_bound(benchmark::State& state) {
  const long capacity = state.range(0);
  const std::vector<planner::ChainRate> chains{{0.2, capacity / 2}, {0.1, capacity - capacity / 2}};
  const double lambda = 0.99 * planner::total_rate_per_s(chains);
  for (auto _ : state) benchmark::DoNotOptimize(planner::mean_response_lower_s(chains, lambda));
}
BENCHMARK(lower_bound)->Arg(100)->Arg(1000)->Arg(10'000)->Arg(100'000)->ArgName("capacity")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace windlass

BENCHMARK_MAIN();
