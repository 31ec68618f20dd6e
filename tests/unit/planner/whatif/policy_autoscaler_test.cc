// Tests the controller in the simulation loop: make_plan runs at its interval; workers start and drain with their delays.
#include "planner/whatif/policy_autoscaler.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/linear_iteration_model.h"
#include "planner/perf/linear_model.h"
#include "planner/policy/make_plan.h"
#include "planner/sim/serving_simulation.h"
#include "tests/list_source.h"

namespace windlass::sim {
namespace {

// One kind of accelerator with one or two Llama 3 8B services; the simulation uses the same linear model as the policy.
class Loop {
 public:
  explicit Loop(int services, int allocatable_gpus) {
    auto spec = planner::accelerator_by_name("a100-80gb");
    EXPECT_TRUE(spec.ok());
    spec->price_per_hour = 2;
    options.accelerators = {{*spec, planner::CapacityMode::kObserved, allocatable_gpus, 0, {}}};
    const auto shape = planner::model_shape_by_name("llama3-8b");
    EXPECT_TRUE(shape.ok());
    for (int s = 0; s < services; ++s) {
      planner::Service service;
      service.id = {"default", "chat-" + std::to_string(s), "uid-" + std::to_string(s)};
      service.served_name = service.id.name;
      service.shape = *shape;
      service.slo = {2, 0.05, 95, 60};
      service.workload = {1, 512, 128};
      service.accelerators = {{"a100-80gb", {}}};
      service.scaling.min_workers = 1;
      service.scaling.scale_down_stabilization_s = 60;
      options.services.push_back(service);
    }
    options.pool = [this, spec = *spec, shape = *shape](int, const std::string& accelerator, int gpus) -> Result<ServingPool> {
      EXPECT_EQ(accelerator, "a100-80gb");
      const planner::LinearCoefficients c = planner::linear_coefficients(shape, spec, gpus, planner::EngineType::kWindlass);
      models.push_back(std::make_unique<planner::LinearIterationModel>(
          planner::LinearPhase{{c.k1, 0, 0, c.c1}, {}}, planner::LinearPhase{{c.k2, c.c2, 0, c.c3}, {}}, c.kv_capacity_tokens));
      ServingPool pool;
      pool.workers = 1;
      pool.model = models.back().get();
      pool.spec.tensor_parallel = gpus;
      pool.price_per_gpu_hour = 2;
      pool.start_s = 30;
      return pool;
    };
  }

  // Runs with one worker per service at the start.
  std::vector<ServingResult> run(std::vector<workload::Request> requests, ServingObserver* observer = nullptr) {
    PolicyAutoscaler autoscaler(options);
    ClusterOptions cluster;
    for (std::size_t s = 0; s < options.services.size(); ++s) {
      ServingService service;
      auto pool = options.pool(static_cast<int>(s), "a100-80gb", 1);
      pool->name = "a100-80gb-1";
      pool->spec.accelerator = "a100-80gb";
      service.pools = {*pool};
      service.dispatch.policy = dispatch::PolicyKind::kJffc;
      service.objectives = ServingObjectives{2, 0.05};
      cluster.services.push_back(service);
    }
    cluster.controller = &autoscaler;
    cluster.observer = observer;
    cluster.sample_interval_s = 1;
    ListSource source(std::move(requests));
    auto results = simulate_cluster(source, cluster);
    EXPECT_TRUE(results.ok());
    EXPECT_TRUE(autoscaler.problem().ok());
    decisions = autoscaler.decisions();
    denied = autoscaler.denied_worker_s();
    snapshot = autoscaler.last_snapshot();
    return *results;
  }

  PolicyAutoscalerOptions options;
  std::vector<std::unique_ptr<planner::LinearIterationModel>> models;
  std::vector<PolicyAutoscaler::Decision> decisions;
  std::map<std::string, double> denied;
  planner::Snapshot snapshot;
};

struct Phase {
  double rate_per_s;
  double seconds;
};

// Poisson arrivals whose rate changes from phase to phase.
std::vector<workload::Request> phases(const std::vector<Phase>& phases, int service, const char* stream) {
  Rng rng(5, stream);
  std::vector<workload::Request> requests;
  double began_s = 0;
  for (const Phase& phase : phases) {
    for (double at_s = rng.exponential(phase.rate_per_s); at_s < phase.seconds; at_s += rng.exponential(phase.rate_per_s)) {
      requests.push_back(
          {began_s + at_s, 1, static_cast<int>(rng.integer(256, 768)), static_cast<int>(rng.integer(64, 192)), service});
    }
    began_s += phase.seconds;
  }
  return requests;
}

// GPUs held by workers at each second, by service.
class GpuWatch final : public ServingObserver {
 public:
  void on_request(const ServedRequest&) override {}
  void on_sample(const WorkerSample& sample) override { gpus_[sample.time_s][sample.service] += sample.gpus; }

  [[nodiscard]] int at(double time_s, int service) const {
    const auto& row = gpus_.at(time_s);
    return row.contains(service) ? row.at(service) : 0;
  }
  [[nodiscard]] int most() const {
    int most = 0;
    for (const auto& [time_s, row] : gpus_) {
      int sum = 0;
      for (const auto& [service, gpus] : row) sum += gpus;
      most = std::max(most, sum);
    }
    return most;
  }

 private:
  std::map<double, std::map<int, int>> gpus_;
};

// Given a load that one worker can serve, then one far above it for ten minutes, then the first again; expects workers to start
// when the load rises and to be ready after their start time, to go after the stabilization window, no lost request, and a
// lower cost than the peak's workers all the time.
TEST(PolicyAutoscaler, FollowsTheLoad) {
  Loop loop(1, 64);
  GpuWatch watch;
  const auto results = loop.run(phases({{2, 300}, {120, 600}, {2, 600}}, 0, "load"), &watch);
  const ServingResult& result = results.front();
  EXPECT_EQ(result.completed, result.requests);
  EXPECT_EQ(watch.at(290, 0), 1);
  EXPECT_GE(watch.at(600, 0), 2);
  EXPECT_EQ(watch.at(1450, 0), 1);
  EXPECT_GT(result.max_workers, 2);
  for (const WorkerFigures& worker : result.workers) {
    if (worker.created_s > 0) {
      EXPECT_NEAR(worker.ready_s - worker.created_s, 30, 1e-9);
    }
  }
  EXPECT_LT(result.gpu_hours, 0.75 * result.max_workers * result.simulated_s / 3600);
  ASSERT_GE(loop.decisions.size(), 3u);
  for (const auto& decision : loop.decisions) EXPECT_FALSE(decision.reasons.empty());
}

// Given the same run twice, and the last snapshot on its own; expects the same result, and make_plan to return the plan that
// was applied, so any decision of a simulation can be replayed.
TEST(PolicyAutoscaler, IsReproducible) {
  Loop one(1, 16), two(1, 16);
  const auto requests = phases({{2, 60}, {60, 120}}, 0, "again");
  const auto a = one.run(requests).front(), b = two.run(requests).front();
  EXPECT_EQ(a.ttft.mean_s, b.ttft.mean_s);
  EXPECT_EQ(a.gpu_hours, b.gpu_hours);
  EXPECT_EQ(one.decisions.size(), two.decisions.size());
  EXPECT_EQ(one.snapshot, two.snapshot);
  EXPECT_EQ(planner::make_plan(one.snapshot), planner::make_plan(two.snapshot));
}

// Given fewer GPUs than the load needs; expects never more to be held, including draining and starting workers, and the denied
// workers on record.
TEST(PolicyAutoscaler, StaysWithinTheGpus) {
  Loop loop(1, 3);
  GpuWatch watch;
  const auto result = loop.run(phases({{150, 240}}, 0, "short"), &watch).front();
  EXPECT_EQ(result.completed, result.requests);
  EXPECT_LE(watch.most(), 3);
  EXPECT_EQ(result.max_workers, 3);
  EXPECT_FALSE(loop.denied.empty());
}

// Given two services that both want more GPUs than exist, the second with higher priority; expects it to get more, the first to
// keep its floor, and the total never to exceed the GPUs.
TEST(PolicyAutoscaler, ArbitratesBetweenServices) {
  Loop loop(2, 6);
  loop.options.services[1].priority = 100;
  auto requests = phases({{100, 240}}, 0, "first");
  const auto second = phases({{100, 240}}, 1, "second");
  requests.insert(requests.end(), second.begin(), second.end());
  std::sort(requests.begin(), requests.end(),
            [](const workload::Request& a, const workload::Request& b) { return a.arrival_s < b.arrival_s; });
  GpuWatch watch;
  const auto results = loop.run(requests, &watch);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].completed, results[0].requests);
  EXPECT_EQ(results[1].completed, results[1].requests);
  EXPECT_LE(watch.most(), 6);
  EXPECT_GE(watch.at(200, 0), 1);
  EXPECT_GT(watch.at(200, 1), watch.at(200, 0));
  EXPECT_LT(results[1].ttft.p95_s, results[0].ttft.p95_s);
}

// Given a service that may idle to zero, and a pause; expects no worker during the pause; the next request waits in the central
// queue until a worker has started, and is answered.
TEST(PolicyAutoscaler, ScalesToZeroAndBack) {
  Loop loop(1, 4);
  loop.options.services[0].scaling.min_workers = 0;
  loop.options.services[0].scaling.idle_to_zero_after_s = 60;
  GpuWatch watch;
  std::vector<workload::Request> requests = phases({{2, 60}}, 0, "zero");
  requests.push_back({900, 1, 300, 50});
  const auto result = loop.run(requests, &watch).front();
  EXPECT_EQ(result.completed, result.requests);
  EXPECT_EQ(result.failed, 0);
  EXPECT_GT(result.ttft.max_s, 29);
  EXPECT_LT(result.ttft.max_s, 40);
  EXPECT_LT(result.gpu_hours, 500.0 / 3600);
}

// Records the input of each decision.
class Watched final : public ClusterController {
 public:
  explicit Watched(PolicyAutoscalerOptions options) : inner_(std::move(options)) {}
  [[nodiscard]] double interval_s() const override { return inner_.interval_s(); }
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override {
    (void)inner_.decide(observation);
    const auto& demand = inner_.last_snapshot().services.front().demand;
    if (demand.queued) queued_at_s[demand.queued->at_s] = demand.queued->value;
    seen_at_s[observation.now_s] = observation.services.front().queued;
    if (demand.queued) oldest_s = std::max(oldest_s, inner_.last_snapshot().now_s - demand.queued->at_s);
    return {};
  }

  std::map<double, double> queued_at_s, seen_at_s;
  double oldest_s = 0;

 private:
  PolicyAutoscaler inner_;
};

// Given readings that are ten seconds old, with a decision every five; expects each reading to be true at its own time, and
// none older than that plus a scrape.
TEST(PolicyAutoscaler, ReadsWhatWas) {
  Loop loop(1, 4);
  loop.options.metrics_age_s = 10;
  loop.options.interval_s = 5;
  Watched watched(loop.options);
  ClusterOptions cluster;
  ServingService service;
  auto pool = loop.options.pool(0, "a100-80gb", 1);
  pool->name = "a100-80gb-1";
  pool->spec.accelerator = "a100-80gb";
  pool->spec.engine.max_sequences = 4;  // so that requests wait at the gateway
  service.pools = {*pool};
  service.dispatch.policy = dispatch::PolicyKind::kJffc;
  cluster.services = {service};
  cluster.controller = &watched;
  ListSource source(phases({{20, 60}}, 0, "readings"));
  ASSERT_TRUE(simulate_cluster(source, cluster).ok());
  ASSERT_GT(watched.queued_at_s.size(), 5u);
  double most = 0;
  for (const auto& [at_s, queued] : watched.queued_at_s) {
    EXPECT_EQ(queued, watched.seen_at_s.at(at_s)) << at_s;
    most = std::max(most, queued);
  }
  EXPECT_GT(most, 10);
  EXPECT_GE(watched.oldest_s, 10);
  EXPECT_LE(watched.oldest_s, 11);
}

// Keeps every snapshot that led to a decision.
class Recorded final : public ClusterController {
 public:
  explicit Recorded(PolicyAutoscalerOptions options) : inner_(std::move(options)) {}
  [[nodiscard]] double interval_s() const override { return inner_.interval_s(); }
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override {
    ClusterOrders orders = inner_.decide(observation);
    arrived.push_back(observation.services.front().arrived);
    snapshots.push_back(inner_.last_snapshot());
    return orders;
  }

  std::vector<std::int64_t> arrived;
  std::vector<planner::Snapshot> snapshots;

 private:
  PolicyAutoscaler inner_;
};

// Given a rising load and workers that start in 30 s; expects the arrival count to be as old as the other readings and never to
// fall; the KV cache use to be that of ready workers, above 0 and at most 1; and start times of 30 s, known once the first
// worker was seen becoming ready, not from initial workers.
TEST(PolicyAutoscaler, ReadsTotalsCachesAndStarts) {
  Loop loop(1, 16);
  loop.options.metrics_age_s = 1;
  Recorded recorded(loop.options);
  ClusterOptions cluster;
  ServingService service;
  auto pool = loop.options.pool(0, "a100-80gb", 1);
  pool->name = "a100-80gb-1";
  pool->spec.accelerator = "a100-80gb";
  service.pools = {*pool};
  service.dispatch.policy = dispatch::PolicyKind::kJffc;
  cluster.services = {service};
  cluster.controller = &recorded;
  ListSource source(phases({{2, 60}, {100, 180}}, 0, "fields"));
  ASSERT_TRUE(simulate_cluster(source, cluster).ok());
  ASSERT_GT(recorded.snapshots.size(), 200u);
  double before = 0, max_use = 0;
  std::optional<double> first_start_s;
  for (std::size_t i = 1; i < recorded.snapshots.size(); ++i) {
    const planner::Service& seen = recorded.snapshots[i].services.front();
    ASSERT_TRUE(seen.demand.arrivals_total);
    EXPECT_EQ(seen.demand.arrivals_total->value, static_cast<double>(recorded.arrived[i - 1]));
    EXPECT_GE(seen.demand.arrivals_total->value, before);
    before = seen.demand.arrivals_total->value;
    bool one_is_ready = false;
    for (const planner::Worker& worker : seen.workers) {
      if (worker.state == planner::WorkerState::kStarting) {
        EXPECT_FALSE(worker.kv_use);
      }
      if (worker.kv_use) {
        EXPECT_GE(worker.kv_use->value, 0);
        EXPECT_LE(worker.kv_use->value, 1);
        max_use = std::max(max_use, worker.kv_use->value);
      }
      one_is_ready = one_is_ready || (worker.created_s > 0 && worker.ready_s);
    }
    if (!first_start_s && one_is_ready) first_start_s = recorded.snapshots[i].now_s;
    EXPECT_EQ(seen.starts.has_value(), first_start_s.has_value()) << recorded.snapshots[i].now_s;
    if (seen.starts) {
      EXPECT_NEAR(seen.starts->p90_s, 30, 1e-9);
      EXPECT_GE(seen.starts->count, 1);
      EXPECT_LE(seen.starts->count, 20);
    }
  }
  EXPECT_GT(max_use, 0.01);
  EXPECT_TRUE(first_start_s);
}

// Given starts of 10 to 130 s in turn, more than are kept; expects the 90th percentile of the latest twenty, by nearest rank.
TEST(PolicyAutoscaler, MeasuresTheP90OfTheYoungestStarts) {
  Loop loop(1, 64);
  const auto pool = loop.options.pool(0, "a100-80gb", 1);
  ServingPool named = *pool;
  named.name = "a100-80gb-1";
  named.spec.accelerator = "a100-80gb";
  PolicyAutoscaler autoscaler(loop.options);
  for (int i = 0; i < 25; ++i) {
    ClusterObservation observation;
    observation.services.resize(1);
    ObservedWorker worker;
    worker.worker = i;
    worker.pool = &named;
    worker.phase = WorkerPhase::kStarting;
    worker.created_s = observation.now_s = 1000.0 * i;
    observation.services.front().workers = {worker};
    (void)autoscaler.decide(observation);
    observation.services.front().workers.front().phase = WorkerPhase::kReady;
    observation.services.front().workers.front().ready_s = worker.created_s + 10 + 5 * i;
    observation.now_s = worker.created_s + 200;
    (void)autoscaler.decide(observation);
  }
  const auto& starts = autoscaler.last_snapshot().services.front().starts;
  ASSERT_TRUE(starts);
  EXPECT_EQ(starts->count, 20);
  // Starts 5 to 24 are kept: the 18th of them is the one of i = 22.
  EXPECT_NEAR(starts->p90_s, 120, 1e-9);
}

}  // namespace
}  // namespace windlass::sim
