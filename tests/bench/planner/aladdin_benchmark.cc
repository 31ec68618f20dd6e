// Benchmarks of Aladdin's placement: placing one request among workers that each run many, and the cost of keeping their state.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/dispatch/best_fit.h"

namespace windlass {
namespace {

using dispatch::BestFit;
using dispatch::PackingModel;
using dispatch::PackingRules;

// Either the context of (b) or the cache of (e) limits a worker, at a tenth above 50 requests of these lengths.
constexpr PackingModel kContextBinds = {1.7e-4, 1.9e-2, 1.75e-6, 1.7e-4, 1.9e-2, 100'000, 16, 256};
constexpr PackingModel kCacheBinds = {1.7e-4, 1.9e-2, 5e-7, 1.7e-4, 1.9e-2, 26'000, 16, 256};
constexpr PackingRules kRules = {0.6, 0.065, 0.5, 0.9, dispatch::PackingPhase::kBoth};

struct Running {
  std::size_t worker = 0;
  BestFit::Handle handle = 0;
};

struct Cluster {
  BestFit fit{kRules};
  std::vector<Running> running;
  Rng rng{7, "placement"};
  BestFit::Handle next = 0;
  double now_s = 0;

  [[nodiscard]] int input() { return static_cast<int>(std::min(2000.0, 1 + rng.exponential(1.0 / 220))); }
  [[nodiscard]] int output() { return static_cast<int>(std::min(1500.0, 2 + rng.exponential(1.0 / 250))); }

  Cluster(int workers, int requests, const PackingModel& model) {
    for (int w = 0; w < workers; ++w) {
      fit.add_worker(model);
      // Around the mean number, so that workers are filled differently.
      const auto here = rng.integer(requests - requests / 5, requests + requests / 5);
      for (int i = 0; i < here; ++i) place(static_cast<std::size_t>(w));
      for (std::int64_t i = rng.integer(20, 60); i > 0; --i) fit.iterated(static_cast<std::size_t>(w));
    }
  }

  void place(std::size_t worker) {
    fit.add(worker, next, input(), output(), now_s);
    fit.begin_decode(worker, next, now_s + rng.uniform(0.4, 1));
    running.push_back({worker, next++});
  }
};

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({100, 50})->Args({1000, 50})->Args({10'000, 50})->ArgNames({"workers", "running"});
  benchmark->Unit(benchmark::kMicrosecond);
}

// Places a request and ends a running one, so that the cluster stays equally full. `found` is the share that fitted.
void place_request(benchmark::State& state, const PackingModel& model) {
  Cluster cluster(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), model);
  double found = 0, asked = 0;
  for (auto _ : state) {
    const int input = cluster.input(), output = cluster.output();
    const auto worker = cluster.fit.find(input, output, cluster.now_s);
    benchmark::DoNotOptimize(worker);
    ++asked;
    if (!worker) continue;
    ++found;
    cluster.fit.add(*worker, cluster.next, input, output, cluster.now_s);
    auto& out =
        cluster
            .running[static_cast<std::size_t>(cluster.rng.integer(0, static_cast<std::int64_t>(cluster.running.size()) - 1))];
    cluster.fit.remove(out.worker, out.handle);
    out = {*worker, cluster.next++};
    cluster.fit.begin_decode(out.worker, out.handle, cluster.now_s + cluster.rng.uniform(0.4, 1));  // and has saved as much
  }
  state.SetLabel(fmt::format("{:.0f} % had room", 100 * found / asked));
}
BENCHMARK_CAPTURE(place_request, context_binds, kContextBinds)->Apply(sizes);
BENCHMARK_CAPTURE(place_request, cache_binds, kCacheBinds)->Apply(sizes);

// The same by scanning every worker and each of its requests, as Alg. 1 is written. Baseline of the ratio for place_request.
void place_request_looking_at_all(benchmark::State& state) {
  Cluster cluster(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), kContextBinds);
  std::vector<std::size_t> order(cluster.fit.workers());
  for (auto _ : state) {
    const int input = cluster.input(), output = cluster.output();
    for (std::size_t w = 0; w < order.size(); ++w) order[w] = w;
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return cluster.fit.worker(a).norm() > cluster.fit.worker(b).norm(); });
    const auto worker = std::find_if(order.begin(), order.end(),
                                     [&](std::size_t w) { return cluster.fit.worker(w).fits(input, output, cluster.now_s); });
    benchmark::DoNotOptimize(worker);
  }
}
BENCHMARK(place_request_looking_at_all)->Args({1000, 50})->ArgNames({"workers", "running"})->Unit(benchmark::kMicrosecond);

// One iteration of a worker: each of its requests gets one more token.
void tell_iteration(benchmark::State& state) {
  Cluster cluster(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), kContextBinds);
  std::size_t worker = 0;
  for (auto _ : state) {
    cluster.fit.iterated(worker);
    worker = (worker + 1) % cluster.fit.workers();
  }
}
BENCHMARK(tell_iteration)->Apply(sizes);

}  // namespace
}  // namespace windlass

BENCHMARK_MAIN();
