// Tests that several services on one clock do not affect each other.
#include <array>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "planner/sim/serving_simulation.h"
#include "tests/effort.h"
#include "tests/list_source.h"
#include "tests/unit/planner/sim/serving_fixture.h"

namespace windlass::sim {
namespace {

// Given 200 random pairs of services, unified or in two roles, with every deterministic policy, and requests for both in one
// stream; expects each service's result to equal that of its own simulation, except that time-based events continue until both
// have ended.
TEST(ServingServices, DoNotDisturbEachOther) {
  constexpr std::array kDrawNothing = {dispatch::PolicyKind::kJffc, dispatch::PolicyKind::kJsq, dispatch::PolicyKind::kSed,
                                       dispatch::PolicyKind::kSaJsq, dispatch::PolicyKind::kRoundRobin};
  Rng rng(11, "services");
  for (int round = 0; round < effort(30, 200); ++round) {
    std::array<Line, 2> models;
    ClusterOptions cluster;
    for (Line& model : models) {
      model.base_s = rng.uniform(0.002, 0.02);
      model.stages = static_cast<int>(rng.integer(1, 2));
      model.capacity_tokens = static_cast<double>(rng.integer(1000, 4000));
      ServingService service;
      const bool two = rng.uniform() < 0.5;
      const int workers = static_cast<int>(rng.integer(1, 3));
      service.pools = {pool_of(model, two ? dispatch::Role::kPrefill : dispatch::Role::kUnified, workers)};
      if (two) service.pools.push_back(pool_of(model, dispatch::Role::kDecode, static_cast<int>(rng.integer(1, 3))));
      for (ServingPool& pool : service.pools) pool.spec.engine.max_sequences = static_cast<int>(rng.integer(1, 8));
      service.link = {{1e7, 1e-4, 0, 0}, 1000};
      if (rng.uniform() < 0.8) service.dispatch.policy = kDrawNothing[static_cast<std::size_t>(rng.integer(0, 4))];
      service.objectives = ServingObjectives{0.2, 0.02};
      cluster.services.push_back(service);
    }
    std::vector<workload::Request> all = random_requests(rng, 150, rng.uniform(2, 60), 300, 40);
    std::array<std::vector<workload::Request>, 2> own;
    for (workload::Request& request : all) {
      request.model = static_cast<int>(rng.integer(0, 1));
      own[static_cast<std::size_t>(request.model)].push_back(request);
      own[static_cast<std::size_t>(request.model)].back().model = 0;
    }
    ListSource source(all);
    const auto together = simulate_cluster(source, cluster);
    ASSERT_TRUE(together.ok());
    ASSERT_EQ(together->size(), 2U);
    for (std::size_t s = 0; s < 2; ++s) {
      ServingOptions alone_options;
      static_cast<ServingService&>(alone_options) = cluster.services[s];
      ListSource alone_source(own[s]);
      const auto alone = simulate_serving(alone_source, alone_options);
      ASSERT_TRUE(alone.ok());
      const ServingResult& mine = (*together)[s];
      ASSERT_EQ(mine.requests, alone->requests);
      ASSERT_EQ(mine.completed, alone->completed) << "round " << round;
      ASSERT_EQ(mine.refused, alone->refused);
      ASSERT_EQ(mine.iterations, alone->iterations) << "round " << round;
      ASSERT_EQ(mine.preemptions, alone->preemptions);
      ASSERT_EQ(mine.kv_transfers, alone->kv_transfers);
      ASSERT_EQ(mine.attainment, alone->attainment);
      for (const auto times :
           {&ServingResult::ttft, &ServingResult::tbt, &ServingResult::e2e, &ServingResult::scheduling_delay}) {
        ASSERT_EQ((mine.*times).mean_s, (*alone.*times).mean_s) << "round " << round;
        ASSERT_EQ((mine.*times).max_s, (*alone.*times).max_s);
      }
      ASSERT_NEAR(mine.mean_workers, alone->mean_workers, 1e-9);
      ASSERT_NEAR(mine.gpu_hours, alone->mean_workers * mine.simulated_s / 3600, 1e-12);
      ASSERT_NEAR(mine.busy_share * mine.simulated_s, alone->busy_share * alone->simulated_s, 1e-9);
      ASSERT_NEAR(mine.mean_kv_in_use * mine.simulated_s, alone->mean_kv_in_use * alone->simulated_s, 1e-9);
    }
  }
}

// Given invalid options; expects an error that names service and field.
TEST(ServingServices, RefusesOptionsByField) {
  Line model;
  ClusterOptions good;
  good.services.resize(2);
  for (ServingService& service : good.services)
    service.pools = {pool_of(model, dispatch::Role::kPrefill, 2), pool_of(model, dispatch::Role::kDecode, 2)};
  const auto message = [&](auto change) {
    ClusterOptions options = good;
    change(options);
    ListSource source({});
    const auto result = simulate_cluster(source, options);
    return result.ok() ? std::string("none") : result.error().message;
  };
  const auto names = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_EQ(message([](ClusterOptions&) {}), "none");
  EXPECT_TRUE(names(message([](auto& o) { o.services[1].pools[1].start_s = -1; }),
                    "services[1].cluster.pools[1].start: must be a time of at least 0 (got -1"));
  EXPECT_TRUE(names(message([](auto& o) {
                      o.services[0].dispatch.flip = dispatch::FlipPolicy{0, 0.1, 0};
                    }),
                    "services[0].scheduling.flip.window"));
  EXPECT_TRUE(names(message([](auto& o) {
                      o.services[0].dispatch.prediction = dispatch::LengthPrediction{0, 1};
                    }),
                    "prediction.bucketTokens: must be a number of at least 1 (got 0"));
  EXPECT_TRUE(names(message([](auto& o) {
                      o.services[0].dispatch.prediction = dispatch::LengthPrediction{100, 1.5};
                    }),
                    "prediction.accuracy"));
  EXPECT_TRUE(names(message([](auto& o) {
                      o.failures.at = {{1, 0}, {2, -1}};
                    }),
                    "failures.at[1].worker: must be a number of at least 0 (got -1"));
  EXPECT_TRUE(names(message([](auto& o) {
                      o.failures.at = {{-2, 0}};
                    }),
                    "failures.at[0].time: must be a time of at least 0 (got -2"));
  EXPECT_TRUE(names(message([](auto& o) { o.failures.mean_time_between_s = -1; }), "failures.meanTimeBetween"));
}

}  // namespace
}  // namespace windlass::sim
