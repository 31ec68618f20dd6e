// Tests workers that start, drain and fail, by a scripted controller and given failures; and the invariants of every run with
// everything combined.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "planner/sim/serving_simulation.h"
#include "tests/effort.h"
#include "tests/list_source.h"
#include "tests/unit/planner/sim/serving_fixture.h"

namespace windlass::sim {
namespace {

// A run of one service with a script and a witness.
struct Scene {
  Line model;
  ServingOptions options;
  ScriptedController controller;
  Witness witness;

  ServingPool& add_pool(dispatch::Role role, int workers) {
    options.pools.push_back(pool_of(model, role, workers));
    return options.pools.back();
  }
  // Sets the script's orders at its n-th call; there are none at other calls.
  void order_at(std::size_t look, std::function<ClusterOrders()> orders) {
    const auto before = controller.orders;
    controller.orders = [this, look, orders, before](const ClusterObservation& observation) {
      return controller.seen.size() == look + 1 ? orders() : before(observation);
    };
    options.controller = &controller;
  }
  Result<ServingResult> run(const std::vector<workload::Request>& requests) {
    options.observer = &witness;
    ListSource source(requests);
    return simulate_serving(source, options);
  }
};

// Given no worker, one ordered at second 1 that takes 5 s to start, and requests from second 2 on; expects it to be seen as
// starting, then as ready at 6; waiting requests go to it then, in order; GPU-hours count from the order to the end.
TEST(ServingLifecycle, AWorkerIsReadyAfterItsStart) {
  Scene scene;
  ServingPool& pool = scene.add_pool(dispatch::Role::kUnified, 0);
  pool.start_s = 5;
  pool.spec.tensor_parallel = 4;
  pool.spec.engine.max_sequences = 1;
  scene.order_at(1, [&] { return ClusterOrders{{{0, &pool, 1}}, {}, {}}; });
  const auto result = scene.run({{2, 1, 100, 1}, {3, 1, 100, 1}, {6.5, 1, 100, 101}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 3);
  EXPECT_NEAR(scene.witness.request(0).ttft_s, 4.02, 1e-9);
  EXPECT_NEAR(scene.witness.request(1).ttft_s, 3.04, 1e-9);
  EXPECT_NEAR(scene.witness.request(2).ttft_s, 0.02, 1e-9);
  const auto& seen = scene.controller.seen;
  EXPECT_TRUE(seen[1].services[0].workers.empty());
  ASSERT_EQ(seen[4].services[0].workers.size(), 1U);
  EXPECT_EQ(seen[4].services[0].workers[0].phase, WorkerPhase::kStarting);
  EXPECT_EQ(seen[4].services[0].workers[0].pool, &pool);
  EXPECT_EQ(seen[4].services[0].queued, 2);
  EXPECT_EQ(seen[4].services[0].arrived, 2);
  EXPECT_EQ(seen[4].services[0].last_arrival_s, 3);
  EXPECT_EQ(seen[7].services[0].workers[0].phase, WorkerPhase::kReady);
  EXPECT_EQ(seen[7].services[0].workers[0].ready_s, 6);
  EXPECT_EQ(seen[7].services[0].workers[0].running, 1);
  EXPECT_EQ(seen[7].services[0].completed, 2);
  EXPECT_NEAR(result->simulated_s, 6.52 + 1.1, 1e-9);
  EXPECT_NEAR(result->gpu_hours, 4 * (result->simulated_s - 1) / 3600, 1e-12);
  EXPECT_EQ(result->workers[0].created_s, 1);
  EXPECT_EQ(result->workers[0].ready_s, 6);
  EXPECT_EQ(result->max_workers, 1);
}

// Given eight waiting requests, and four workers that become ready at the same time; expects two for each.
TEST(ServingLifecycle, WorkersThatAreReadyTogetherShareTheQueue) {
  Scene scene;
  ServingPool& pool = scene.add_pool(dispatch::Role::kUnified, 0);
  pool.start_s = 2;
  scene.order_at(0, [&] { return ClusterOrders{{{0, &pool, 4}}, {}, {}}; });
  const auto result = scene.run(std::vector<workload::Request>(8, {1, 1, 100, 5}));
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->workers.size(), 4U);
  for (const WorkerFigures& worker : result->workers) EXPECT_EQ(worker.completed, 2);
}

// Given two workers, one ordered to drain at second 1 while both have requests for ten seconds; expects it to finish its own,
// to get no others, and to end with the last one; the other takes all later requests.
TEST(ServingLifecycle, ADrainingWorkerFinishesWhatItHas) {
  Scene scene;
  scene.add_pool(dispatch::Role::kUnified, 2);
  scene.order_at(1, [] { return ClusterOrders{{}, {0}, {}}; });
  const auto result = scene.run({{0, 1, 100, 901}, {0, 1, 100, 901}, {1.5, 1, 100, 2}, {2, 1, 100, 2}, {20, 1, 100, 1}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 5);
  EXPECT_EQ(result->workers[0].completed, 1);
  EXPECT_EQ(result->workers[1].completed, 4);
  EXPECT_NEAR(result->workers[0].ended_s, 0.02 + 900 * 0.011, 1e-6);
  EXPECT_NEAR(result->workers[1].ended_s, result->simulated_s, 1e-9);
  EXPECT_EQ(scene.controller.seen[5].services[0].workers[0].phase, WorkerPhase::kDraining);
  EXPECT_EQ(scene.controller.seen[11].services[0].workers.size(), 1U);
  EXPECT_NEAR(result->gpu_hours, (result->workers[0].ended_s + result->simulated_s) / 3600, 1e-9);
  EXPECT_NEAR(result->workers[0].busy_share, 1, 1e-6);
}

// Given two prefill and two decode workers, ordered to drain while caches are prefilled, waiting and in transfer; expects both
// to finish everything they were given.
TEST(ServingLifecycle, RolesDrainWithCachesOnTheirWay) {
  Scene scene;
  scene.options.pools.reserve(2);
  scene.add_pool(dispatch::Role::kPrefill, 2).spec.engine.max_batch_tokens = 100;
  scene.add_pool(dispatch::Role::kDecode, 2).spec.engine.max_sequences = 2;
  scene.options.link = {{1e6, 0, 0, 0}, 10000};  // a second for a cache of 100 tokens
  scene.controller.every_s = 0.5;
  scene.order_at(1, [] { return ClusterOrders{{}, {0, 2}, {}}; });
  std::vector<workload::Request> requests(40, {0, 1, 100, 30});
  requests.push_back({0.6, 1, 100, 30});
  const auto result = scene.run(requests);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 41);
  EXPECT_EQ(result->kv_transfers, 41);
  EXPECT_EQ(result->workers[2].completed, 20);
  EXPECT_EQ(result->workers[3].completed, 21);
  EXPECT_LT(result->workers[0].ended_s, result->simulated_s);
  EXPECT_GT(result->workers[0].ended_s, 1);
  EXPECT_EQ(scene.witness.request(40).prefill_worker, 1);
}

// Given a worker ordered at 0 with a start of 100 s, drained at second 3; expects it to end then without ever being ready,
// having taken nothing and held its GPU for 3 s.
TEST(ServingLifecycle, DrainingAStartingWorkerEndsIt) {
  Scene scene;
  scene.options.pools.reserve(2);
  ServingPool& pool = scene.add_pool(dispatch::Role::kUnified, 0);
  pool.start_s = 100;
  scene.add_pool(dispatch::Role::kUnified, 1);
  scene.order_at(0, [&] { return ClusterOrders{{{0, &pool, 1}}, {}, {}}; });
  scene.order_at(3, [] { return ClusterOrders{{}, {1}, {}}; });
  const auto result = scene.run({{5, 1, 100, 1}, {150, 1, 100, 1}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 2);
  EXPECT_EQ(result->workers[1].ended_s, 3);
  EXPECT_TRUE(std::isinf(result->workers[1].ready_s));
  EXPECT_NEAR(result->gpu_hours, (result->simulated_s + 3) / 3600, 1e-9);
}

// Given JFFC, two workers and slot orders: three immediately, five from second 4 on; expects no worker ever to exceed them, the
// rest to wait in the central queue, and the larger limit to be used as soon as it is ordered.
TEST(ServingLifecycle, SlotsBoundWhatAWorkerIsSent) {
  Scene scene;
  scene.add_pool(dispatch::Role::kUnified, 2).name = "small";
  scene.options.dispatch.policy = dispatch::PolicyKind::kJffc;
  scene.options.sample_interval_s = 0.05;
  scene.order_at(0, [] { return ClusterOrders{{}, {}, {{0, "small", 3}}}; });
  scene.order_at(4, [] { return ClusterOrders{{}, {}, {{0, "small", 5}}}; });
  std::vector<workload::Request> requests;
  for (int i = 0; i < 60; ++i) requests.push_back({0.5 + i * 0.01, 1, 100, 100});
  const auto result = scene.run(requests);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 60);
  int before = 0, after = 0;
  for (const WorkerSample& sample : scene.witness.samples) {
    int& most = sample.time_s <= 4 ? before : after;
    most = std::max(most, sample.running + sample.waiting);
  }
  EXPECT_EQ(before, 3);
  EXPECT_EQ(after, 5);
  for (const WorkerSample& sample : scene.witness.samples) {
    if (sample.time_s > 4.06 && sample.time_s < 4.5) {
      EXPECT_EQ(sample.running + sample.waiting, 5);
    }
  }
}

// Given JFFC, one worker too small for long requests and one that is not, one slot each, and long requests; expects them to
// wait for the large one although the other is free, and never two on it.
TEST(ServingLifecycle, SlotsBoundTheOnlyWorkerThatCanHold) {
  Scene scene;
  scene.options.pools.reserve(2);
  scene.add_pool(dispatch::Role::kUnified, 1).spec.engine.kv_blocks = 4;
  scene.add_pool(dispatch::Role::kUnified, 1);
  for (ServingPool& pool : scene.options.pools) pool.spec.engine.max_sequences = 1;
  scene.options.dispatch.policy = dispatch::PolicyKind::kJffc;
  scene.options.sample_interval_s = 0.01;
  const auto result = scene.run({{0, 1, 100, 50}, {0, 1, 100, 50}, {0.1, 1, 100, 50}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->workers[1].completed, 3);
  for (const WorkerSample& sample : scene.witness.samples) EXPECT_LE(sample.running + sample.waiting, 1);
}

// Given a controller that never starts a worker; one whose workers never live long enough to be ready; and no controller with
// the only worker gone; expects the run to end, and all waiting requests to count as failed.
TEST(ServingLifecycle, WithoutAnyWorkerRequestsFail) {
  for (const int what : {0, 1, 2}) {
    Scene scene;
    ServingPool& pool = scene.add_pool(dispatch::Role::kUnified, what == 2 ? 1 : 0);
    pool.start_s = 60;
    if (what < 2) scene.order_at(0, [&] { return what == 1 ? ClusterOrders{{{0, &pool, 1}}, {}, {}} : ClusterOrders{}; });
    if (what == 1) scene.options.failures.mean_time_between_s = 0.5;
    if (what == 2) {
      scene.options.failures.at = {{0.5, 0}};
      scene.options.failures.restart = false;
    }
    const auto result = scene.run({{1, 1, 100, 1}, {2, 1, 100, 1}});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->failed, 2) << what;
    EXPECT_EQ(result->completed, 0);
    EXPECT_TRUE(scene.witness.request(1).failed);
  }
}

// Given a controller that is called every millisecond, and a worker that takes a minute to start, which is many calls; expects
// the request to wait for it.
TEST(ServingLifecycle, ManyLooksAreNotTooLongAWait) {
  Scene scene;
  ServingPool& pool = scene.add_pool(dispatch::Role::kUnified, 0);
  pool.start_s = 60;
  scene.controller.every_s = 0.001;
  scene.order_at(0, [&] { return ClusterOrders{{{0, &pool, 1}}, {}, {}}; });
  const auto result = scene.run({{0, 1, 100, 1}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 1);
  EXPECT_NEAR(scene.witness.request(0).ttft_s, 60.02, 1e-9);
}

// Given a worker that fails at 0.5 s with one streaming request, one in its prefill and one waiting, and that takes 3 s to
// restart; expects the first to fail, the others to be served by the new one at 3.5 s, and each request to be scheduled once.
TEST(ServingLifecycle, AFailureLosesWhatStreamsAndRetriesTheRest) {
  Scene scene;
  ServingPool& pool = scene.add_pool(dispatch::Role::kUnified, 1);
  pool.start_s = 3;
  scene.options.failures.at = {{0.5, 0}, {0.6, 0}, {0.7, 9}};
  const auto result = scene.run({{0, 1, 100, 500}, {0.45, 1, 1000, 1}, {0.46, 1, 100, 2}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->failed, 1);
  EXPECT_EQ(result->completed, 2);
  EXPECT_EQ(result->retried, 2);
  EXPECT_TRUE(scene.witness.request(0).failed);
  EXPECT_NEAR(scene.witness.request(1).ttft_s, 3.05 + 0.11, 1e-9);
  EXPECT_NEAR(scene.witness.request(2).ttft_s, 3.04 + 0.11 + 0.02, 1e-9);
  EXPECT_LT(scene.witness.request(1).scheduling_delay_s, 0.05);  // of its first dispatch
  ASSERT_EQ(result->workers.size(), 2U);
  EXPECT_TRUE(result->workers[0].failed);
  EXPECT_EQ(result->workers[0].ended_s, 0.5);
  EXPECT_NEAR(result->workers[0].busy_share, 1, 1e-9);
  EXPECT_FALSE(result->workers[1].failed);
  EXPECT_EQ(result->workers[1].ready_s, 3.5);
}

// Given two decode workers, one of which fails while a cache is in transfer to it, another waits for room there, and a third
// request decodes; expects the first two to go to the other worker and be served, and the third to fail.
TEST(ServingLifecycle, CachesFindAnotherDecodeWorker) {
  Scene scene;
  scene.options.pools.reserve(2);
  scene.add_pool(dispatch::Role::kPrefill, 1).spec.engine.max_batch_tokens = 100;
  scene.add_pool(dispatch::Role::kDecode, 2).spec.engine.max_sequences = 2;
  scene.options.dispatch.policy = dispatch::PolicyKind::kRoundRobin;  // 1, 2, 1, 2, ...
  scene.options.link = {{1e6, 0, 0, 0}, 5000};                        // half a second for 100 tokens
  scene.options.failures.at = {{0.7, 1}};
  scene.options.failures.restart = false;
  const auto result = scene.run({{0, 1, 100, 100},       // decodes on worker 1 from 0.52 on
                                 {0, 1, 100, 100},       // on worker 2
                                 {0, 1, 100, 1},         // stays at the prefill worker
                                 {0.4, 1, 100, 100},     // its cache is on its way to worker 1 from 0.42 to 0.92
                                 {0.4, 1, 100, 100},     // to worker 2
                                 {0.41, 1, 100, 100},    // its cache waits for room on worker 1
                                 {0.42, 1, 100, 100}});  // on worker 2
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 6);
  EXPECT_EQ(result->failed, 1);
  EXPECT_TRUE(scene.witness.request(0).failed);
  EXPECT_EQ(result->retried, 0);
  EXPECT_EQ(result->workers[1].completed, 0);
  EXPECT_EQ(result->workers[2].completed, 5);
}

// Given a prefill worker that fails with one cache in transfer, one prompt running, one waiting, and one request already
// decoding elsewhere; expects the cache and its request to be lost, the prompts to be prefilled by the other worker, and the
// decoding request to be unaffected.
TEST(ServingLifecycle, APrefillWorkerFails) {
  Scene scene;
  scene.options.pools.reserve(2);
  scene.add_pool(dispatch::Role::kPrefill, 2).spec.engine.max_batch_tokens = 100;
  scene.add_pool(dispatch::Role::kDecode, 1);
  scene.options.dispatch.policy = dispatch::PolicyKind::kRoundRobin;  // 0, 1, 0, 1, ...
  scene.options.link = {{1e6, 0, 0, 0}, 5000};
  scene.options.failures.at = {{0.71, 0}};
  scene.options.failures.restart = false;
  const auto result = scene.run({{0, 1, 100, 100},    // decodes from 0.52 on
                                 {0, 1, 100, 100},    // prefilled by the other
                                 {0.4, 1, 100, 100},  // its cache is in transfer
                                 {0.4, 1, 100, 100},
                                 {0.7, 1, 100, 100},  // in its prefill
                                 {0.7, 1, 100, 100},
                                 {0.705, 1, 100, 100}});  // waits
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 6);
  EXPECT_TRUE(scene.witness.request(2).failed);
  EXPECT_EQ(result->retried, 2);
  EXPECT_EQ(scene.witness.request(0).prefill_worker, 0);
  EXPECT_EQ(scene.witness.request(4).prefill_worker, 1);
  EXPECT_EQ(scene.witness.request(6).prefill_worker, 1);
  EXPECT_NEAR(scene.witness.request(0).e2e_s, 0.02 + 0.5 + 99 * 0.012, 0.2);
}

// Given a draining worker that fails, with restarts; expects no replacement.
TEST(ServingLifecycle, ADrainingWorkerIsNotReplaced) {
  Scene scene;
  scene.add_pool(dispatch::Role::kUnified, 2);
  scene.options.failures.at = {{2, 0}, {3, 1}};
  scene.order_at(1, [] { return ClusterOrders{{}, {0}, {}}; });
  const auto result = scene.run({{0, 1, 100, 1000}, {0, 1, 100, 1000}, {5, 1, 100, 1}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->failed, 2);
  EXPECT_EQ(result->completed, 1);
  EXPECT_EQ(result->workers.size(), 3U);
}

// Given a prompt that takes 10 s on workers that live for a hundredth of that; expects the run to end, with the request failed
// after 16 workers.
TEST(ServingLifecycle, ARequestThatOutlivesItsWorkersFails) {
  Scene scene;
  scene.model.base_s = 10;
  scene.add_pool(dispatch::Role::kUnified, 1);
  scene.options.failures.mean_time_between_s = 0.01;
  const auto result = scene.run({{0, 1, 100, 1}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->failed, 1);
  EXPECT_EQ(result->retried, 15);
}

// A random cluster of one or two services with every feature.
struct RandomCluster {
  std::vector<std::unique_ptr<Line>> models;
  std::vector<std::unique_ptr<ServingPool>> extra;  // that the controller may start
  ClusterOptions options;
  std::vector<workload::Request> requests;
  std::uint64_t seed;

  explicit RandomCluster(int round) : seed(static_cast<std::uint64_t>(round)) {
    Rng rng(seed, "mixed clusters");
    options.seed = seed;
    const int services = static_cast<int>(rng.integer(1, 2));
    for (int s = 0; s < services; ++s) add_service(rng);
    requests = random_requests(rng, 100, rng.uniform(2, 40), 300, 60);
    for (workload::Request& request : requests) {
      request.model = static_cast<int>(rng.integer(0, services - 1));
      if (rng.uniform() < 0.4) {
        request.prefix = static_cast<int>(rng.integer(0, 2));
        request.prefix_tokens = static_cast<int>(rng.integer(0, request.input_tokens));
      }
    }
    if (rng.uniform() < 0.6) options.failures.mean_time_between_s = rng.uniform(0.5, 20);
    if (rng.uniform() < 0.3) options.failures.at = {{rng.uniform(0, 5), 0}, {rng.uniform(0, 5), 1}};
    options.failures.restart = rng.uniform() < 0.8;
  }

  void add_service(Rng& rng) {
    constexpr std::array kPaged = {planner::Batching::kVllm, planner::Batching::kMixed, planner::Batching::kSarathi,
                                   planner::Batching::kVllmV1};
    constexpr std::array kReserving = {planner::Batching::kStatic, planner::Batching::kOrca};
    models.push_back(std::make_unique<Line>());
    Line& model = *models.back();
    model.base_s = rng.uniform(0.002, 0.05);
    model.stages = static_cast<int>(rng.integer(1, 3));
    model.capacity_tokens = static_cast<double>(rng.integer(400, 3000));
    ServingService service;
    const bool two = rng.uniform() < 0.75;
    const bool mixed_pool = two && rng.uniform() < 0.5;
    const planner::Batching batching = mixed_pool || rng.uniform() < 0.8
                                           ? kPaged[static_cast<std::size_t>(rng.integer(0, 3))]
                                           : kReserving[static_cast<std::size_t>(rng.integer(0, 1))];
    const auto add = [&](dispatch::Role role) {
      ServingPool pool = pool_of(model, role, static_cast<int>(rng.integer(1, 3)), batching);
      pool.name = to_string(role);
      pool.start_s = rng.uniform(0, 3);
      pool.swap_s_per_token = 1e-6;
      pool.spec.engine.max_sequences = static_cast<int>(rng.integer(1, 8));
      pool.spec.engine.max_batch_tokens = static_cast<int>(rng.integer(32, 512));
      pool.spec.engine.prefix_caching = rng.uniform() < 0.5;
      if (rng.uniform() < 0.5) {
        pool.spec.engine.preemption = planner::Preemption::kSwap;
        pool.spec.engine.host_blocks = rng.integer(0, 100);
      }
      pool.spec.engine.admission = planner::kAllDecodeAdmissions[static_cast<std::size_t>(rng.integer(0, 2))];
      pool.spec.engine.prompt_order = planner::kAllPromptOrders[static_cast<std::size_t>(rng.integer(0, 2))];
      service.pools.push_back(pool);
    };
    if (two) {
      add(dispatch::Role::kPrefill);
      add(dispatch::Role::kDecode);
      service.link = {{1e7, 1e-3, rng.uniform() < 0.5 ? 8 : 0, 0}, rng.uniform() < 0.3 ? 1e5 : 1e3};
      if (mixed_pool) {
        service.dispatch.mixed_pool_threshold_tokens = rng.integer(0, 500);
        if (rng.uniform() < 0.5) service.dispatch.decode_choice = dispatch::DecodeChoice::kLeastMemory;
      } else if (rng.uniform() < 0.7) {
        service.dispatch.decode_choice = dispatch::DecodeChoice::kTwoChoice;
      }
      if (rng.uniform() < 0.6) service.dispatch.flip = dispatch::FlipPolicy{rng.uniform(0.2, 2), 0.3, 0.006};
    } else {
      add(dispatch::Role::kUnified);
    }
    if (rng.uniform() < 0.5) service.dispatch.prediction = dispatch::LengthPrediction{20, 0.7};
    if (rng.uniform() < 0.7) service.dispatch.policy = dispatch::kAllPolicies[static_cast<std::size_t>(rng.integer(0, 6))];
    options.services.push_back(service);
  }

  std::vector<ServingResult> run(Witness& witness) {
    // Starts and drains at random, and sometimes sets slots.
    ScriptedController controller;
    controller.every_s = 0.7;
    Rng rng(seed, "orders");
    controller.orders = [&](const ClusterObservation& observation) {
      ClusterOrders orders;
      for (std::size_t s = 0; s < observation.services.size(); ++s) {
        const auto& workers = observation.services[s].workers;
        const auto& pools = options.services[s].pools;
        const ServingPool& pool = pools[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(pools.size()) - 1))];
        if (rng.uniform() < 0.2 && workers.size() < 8) orders.start.push_back({static_cast<int>(s), &pool, 1});
        if (rng.uniform() < 0.15 && !workers.empty()) {
          orders.drain.push_back(
              workers[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(workers.size()) - 1))].worker);
        }
        if (rng.uniform() < 0.1) orders.slots.push_back({static_cast<int>(s), pool.name, static_cast<int>(rng.integer(1, 6))});
      }
      return orders;
    };
    if (seed % 3 != 0) options.controller = &controller;
    options.observer = &witness;
    ListSource source(requests);
    auto results = simulate_cluster(source, options);
    options.controller = nullptr;
    EXPECT_TRUE(results.ok()) << results.error().message;
    return std::move(results).value();
  }
};

// Given random clusters of one or two services, unified or in two roles, with pipelines, mixed pools, two choices, flips,
// failures, restarts, starts, drains, slots, swaps, cached prefixes and predictions; expects the run to end; one outcome per
// request, reported once; times in order and within the lives of its workers; GPU-hours equal to the workers' lives; and the
// same result for the same seed. The simulator's own assertions check that an idle worker's counters are zero.
TEST(ServingLifecycle, EverythingAtOnceLosesNothing) {
  std::int64_t completed = 0, failed = 0, refused = 0, retried = 0, flips = 0, transfers = 0, preemptions = 0, swapped = 0,
               hits = 0, workers_ended = 0;
  for (int round = 0; round < effort(150, 1500); ++round) {
    RandomCluster cluster(round);
    Witness witness, again;
    const auto results = cluster.run(witness);
    std::int64_t requests = 0;
    std::vector<WorkerFigures> workers;
    for (const ServingResult& result : results) {
      ASSERT_EQ(result.completed + result.refused + result.failed, result.requests) << "round " << round;
      requests += result.requests;
      completed += result.completed;
      failed += result.failed;
      refused += result.refused;
      retried += result.retried;
      flips += result.flips;
      transfers += result.kv_transfers;
      preemptions += result.preemptions;
      swapped += result.swapped_tokens;
      hits += result.prefix_hit_tokens;
      double held_s = 0;
      std::int64_t served = 0;
      for (const WorkerFigures& worker : result.workers) {
        held_s += worker.ended_s - worker.created_s;
        served += worker.completed;
        workers_ended += worker.ended_s < result.simulated_s;
        ASSERT_LE(worker.busy_share, 1 + 1e-9) << "round " << round;
        ASSERT_GE(worker.busy_share, 0);
        ASSERT_LE(worker.mean_kv_in_use, 1 + 1e-9);
        ASSERT_GE(worker.mean_kv_in_use, -1e-9);
        workers.push_back(worker);
      }
      ASSERT_NEAR(result.gpu_hours, held_s / 3600, 1e-9);
      ASSERT_EQ(served, result.completed);
    }
    ASSERT_EQ(requests, 100);
    std::sort(workers.begin(), workers.end(), [](const auto& a, const auto& b) { return a.worker < b.worker; });
    std::set<std::int64_t> told;
    for (const ServedRequest& request : witness.requests) {
      ASSERT_TRUE(told.insert(request.number).second) << "round " << round;
      if (request.refused || request.failed) continue;
      ASSERT_GE(request.scheduling_delay_s, 0);
      ASSERT_LT(request.scheduling_delay_s, request.ttft_s);
      ASSERT_LE(request.ttft_s, request.e2e_s);
      const WorkerFigures& prefill = workers[static_cast<std::size_t>(request.prefill_worker)];
      const WorkerFigures& decode = workers[static_cast<std::size_t>(request.decode_worker)];
      ASSERT_LE(prefill.ready_s, request.arrival_s + request.ttft_s);
      ASSERT_GE(prefill.ended_s, request.arrival_s + request.ttft_s - 1e-9);
      ASSERT_LE(decode.ready_s, request.arrival_s + request.e2e_s);
      ASSERT_GE(decode.ended_s, request.arrival_s + request.e2e_s - 1e-9);
    }
    ASSERT_EQ(told.size(), 100U);
    if (round % 5 != 0) continue;
    const auto repeated = cluster.run(again);
    for (std::size_t s = 0; s < results.size(); ++s) {
      ASSERT_EQ(repeated[s].e2e.mean_s, results[s].e2e.mean_s);
      ASSERT_EQ(repeated[s].iterations, results[s].iterations);
      ASSERT_EQ(repeated[s].failed, results[s].failed);
      ASSERT_EQ(repeated[s].simulated_s, results[s].simulated_s);
      ASSERT_EQ(repeated[s].workers.size(), results[s].workers.size());
    }
  }
  // All of these happened.
  EXPECT_GT(completed, effort(3333, 50'000));
  EXPECT_GT(failed, effort(66, 1000));
  EXPECT_GT(refused, effort(6, 100));
  EXPECT_GT(retried, effort(66, 1000));
  EXPECT_GT(flips, effort(6, 100));
  EXPECT_GT(transfers, effort(666, 10'000));
  EXPECT_GT(preemptions, effort(66, 1000));
  EXPECT_GT(swapped, effort(66, 1000));
  EXPECT_GT(hits, effort(66, 1000));
  EXPECT_GT(workers_ended, effort(66, 1000));
}

}  // namespace
}  // namespace windlass::sim
