// Compares the fake workers' times with the planner's model.
#include "tests/cluster/kwok/fake_engine.h"

#include <map>

#include <gtest/gtest.h>

#include "planner/sizing/worker_config.h"

namespace windlass::testing {
namespace {

FakeEngineOptions options_of(int concurrency) {
  FakeEngineOptions options;
  options.times = {.k1 = 1e-4, .c1 = 0.01, .k2 = 1e-7, .c2 = 1e-4, .c3 = 0.02, .kv_capacity_tokens = 100'000};
  options.max_concurrency = concurrency;
  return options;
}

std::vector<Emission> run_all(FakeEngine& engine) {
  std::vector<Emission> all;
  while (const auto next_s = engine.next_event_s()) {
    const auto more = engine.advance(*next_s + 1e-9);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

// Given a single request; expects the first token after the prefill, the last after one decode iteration per further token, and
// pieces that add up to the requested length.
TEST(FakeEngineTest, OneRequestTakesPrefillAndIterations) {
  const FakeEngineOptions options = options_of(4);
  FakeEngine engine(options);
  ASSERT_TRUE(engine.submit(7, 1000, 100, 5.0));
  const std::vector<Emission> all = run_all(engine);
  ASSERT_FALSE(all.empty());
  const planner::LinearModel model(options.times);
  EXPECT_NEAR(all.front().at_s, 5.0 + model.prefill_s(1000), 1e-6);
  EXPECT_EQ(all.front().tokens, 1);
  EXPECT_NEAR(all.back().at_s - all.front().at_s, 99 * model.decode_s(1, 1050), 99 * model.decode_s(1, 1050) * 0.01);
  int tokens = 0;
  for (const Emission& one : all) tokens += one.tokens;
  EXPECT_EQ(tokens, 100);
  EXPECT_TRUE(all.back().finished);
  EXPECT_FALSE(engine.next_event_s().has_value());
}

// Given a full batch that is always refilled; expects the time from first to last token to be within a tenth of the planner's
// prediction for that batch.
TEST(FakeEngineTest, AFullBatchIsAsSlowAsThePlannerPredicts) {
  const FakeEngineOptions options = options_of(8);
  FakeEngine engine(options);
  constexpr int kIn = 500, kOut = 200;
  double now_s = 0;
  std::int64_t next = 0;
  // Evenly spread, as in a busy worker: request n starts n eighths of a service time after the first.
  const planner::WorkerTimes believed = planner::worker_times(planner::LinearModel(options.times), 8, {kIn, kOut});
  std::map<std::int64_t, double> first_s;
  double sum_s = 0;
  int finished = 0;
  for (int i = 0; i < 400; ++i) {
    now_s += believed.service_s / 8;
    for (const Emission& one : engine.advance(now_s)) {
      if (one.generated == 1) first_s[one.request] = one.at_s;
      if (one.finished && one.request >= 40) {
        sum_s += (one.at_s - first_s.at(one.request)) / (kOut - 1);
        ++finished;
      }
    }
    ASSERT_TRUE(engine.submit(next++, kIn, kOut, now_s));
  }
  ASSERT_GT(finished, 100);
  EXPECT_NEAR(sum_s / finished, believed.tpot_s, believed.tpot_s * 0.1);
}

// Given more requests than may run and wait; expects the surplus to be refused, and a cancelled one to make room.
TEST(FakeEngineTest, RefusesRequestsThatExceedTheQueue) {
  FakeEngineOptions options = options_of(1);
  options.max_waiting = 2;
  FakeEngine engine(options);
  EXPECT_TRUE(engine.submit(1, 10, 10, 0));
  EXPECT_TRUE(engine.submit(2, 10, 10, 0));
  EXPECT_TRUE(engine.submit(3, 10, 10, 0));
  EXPECT_FALSE(engine.submit(4, 10, 10, 0));
  engine.cancel(2, 0);
  EXPECT_TRUE(engine.submit(4, 10, 10, 0));
  EXPECT_EQ(engine.running() + engine.waiting(), 3);
}

}  // namespace
}  // namespace windlass::testing
