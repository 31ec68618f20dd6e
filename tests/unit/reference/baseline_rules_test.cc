// Tests of the rules of llm-d's Workload Variant Autoscaler and of Dynamo's planner by hand.
#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/autoscalers/baseline_dynamo.h"
#include "tests/reference/autoscalers/baseline_wva.h"
#include "tests/unit/reference/baseline_fixture.h"

namespace windlass::sim {
namespace {

// S = 20 sequences of I + O / 2 = 300 tokens are the limit: 6,000 tokens per replica, below 0.8 * 10,000.
constexpr WvaEngine kEngine = {10'000, 20, 2048};
constexpr WvaLengths kLengths = {200, 200};

// Given two replicas of 6,000 tokens; expects enough more replicas as soon as the demand exceeds 85 % of them.
TEST(WvaRule, RequiresCapacity) {
  WvaRule rule({}, kEngine);
  EXPECT_EQ(rule.decide({{5000, 0}, {5000, 0}}, 0, 0, kLengths), 2);   // 10,000 / 0.85 = 11,765
  EXPECT_EQ(rule.decide({{5100, 0}, {5110, 0}}, 0, 0, kLengths), 3);   // 10,210 / 0.85 = 12,012
  EXPECT_EQ(rule.decide({{5000, 0}, {5000, 0}}, 0, 20, kLengths), 4);  // 20 wait: 18,000 / 0.85 = 21,176
  EXPECT_EQ(rule.decide({{5000, 0}, {5000, 0}}, 2, 20, kLengths), 4);  // two of them are already starting
  EXPECT_EQ(rule.decide({{5000, 1}, {5000, 0}}, 0, 0, kLengths), 2);   // one waits inside: 10,200 / 0.85 = 12,000
}

// Given three replicas of 6,000 tokens; expects one fewer for each whole replica that 70 % of the rest would not need. One
// always stays.
TEST(WvaRule, GivesUpSpareCapacity) {
  WvaRule rule({}, kEngine);
  EXPECT_EQ(rule.decide({{3000, 0}, {3000, 0}, {3000, 0}}, 0, 0, kLengths), 3);  // 18,000 - 12,857 = 5,143
  EXPECT_EQ(rule.decide({{2800, 0}, {2800, 0}, {2800, 0}}, 0, 0, kLengths), 2);  // 18,000 - 12,000 = 6,000
  EXPECT_EQ(rule.decide({{0, 0}, {0, 0}, {0, 0}}, 0, 0, kLengths), 1);
  EXPECT_EQ(rule.decide({}, 1, 5, kLengths), 1);  // no capacity is known
}

// Given a batch budget or memory that is reached before the sequences are; expects the smaller one as the capacity.
TEST(WvaRule, TakesTheSmallestLimit) {
  // B O / (I + O) = 10 sequences of 300 tokens: 3,000.
  EXPECT_EQ(WvaRule({}, {10'000, 20, 20}).decide({{2600, 0}}, 0, 0, kLengths), 2);
  EXPECT_EQ(WvaRule({}, {10'000, 20, 20}).decide({{2500, 0}}, 0, 0, kLengths), 1);
  // 0.8 * 5,000.
  EXPECT_EQ(WvaRule({}, {5000, 20, 2048}).decide({{3500, 0}}, 0, 0, kLengths), 2);
}

// Given five requests that wait inside a replica with 2,000 tokens in use; expects this as a replica's capacity, now and later.
TEST(WvaRule, LearnsTheComputeLimit) {
  WvaRule rule({}, kEngine);
  EXPECT_EQ(rule.decide({{2000, 5}}, 0, 0, kLengths), 2);  // 3,000 / 0.85 = 3,529
  EXPECT_EQ(rule.decide({{1600, 0}, {1600, 0}}, 0, 0, kLengths), 2);
  EXPECT_EQ(rule.decide({{1800, 0}, {1800, 0}}, 0, 0, kLengths), 3);  // 3,600 / 0.85 = 4,235
}

// Given peaks of the last minute, decisions every 30 s, and an HPA behind them; expects a peak to count for a minute. More
// replicas start immediately; fewer only after the HPA's window.
TEST(BaselineWva, SeesPeaksAndActsThroughAnHpa) {
  BaselineWva wva(plain_deployment(20), {});
  auto at = [](double now_s, std::vector<ObservedWorker> workers) {
    ClusterObservation seen = observed(now_s, std::move(workers));
    seen.services.front().completed = 10 + static_cast<std::int64_t>(now_s);
    seen.services.front().input_tokens = 200 * seen.services.front().completed;
    seen.services.front().output_tokens = 200 * seen.services.front().completed;
    return seen;
  };
  EXPECT_EQ(started(wva.decide(at(0, {ready_worker(0, 20, 0, 0.1)}))), 0);
  EXPECT_EQ(started(wva.decide(at(15, {ready_worker(0, 20, 0, 0.6)}))), 0);  // no decision yet
  EXPECT_EQ(started(wva.decide(at(30, {ready_worker(0, 20, 0, 0.1)}))), 1);  // 6,000 of 6,000
  const std::vector<ObservedWorker> two = {ready_worker(0), ready_worker(1)};
  EXPECT_TRUE(wva.decide(at(120, two)).drain.empty());
  EXPECT_TRUE(wva.decide(at(300, two)).drain.empty());
  EXPECT_EQ(wva.decide(at(480, two)).drain.size(), 1u);
}

const DynamoEngine kPlainEngine = {&plain_model(), 30, 1000};

DynamoOptions objectives(double ttft_s, double itl_s) {
  DynamoOptions options;
  options.ttft_s = ttft_s;
  options.itl_s = itl_s;
  return options;
}

// Given decode iterations of 20 ms and 1 ms per sequence, and prompts of 100 tokens for 100 tokens of output: b prompt tokens,
// so 0.1 ms b more per iteration; expects at 31 ms a largest batch of 10 and its rate 10 / (100 * 31 ms).
TEST(BaselineDynamo, FindsTheBestRate) {
  EXPECT_NEAR(best_engine_rate(kPlainEngine, {100, 100}, objectives(1, 0.0311)), 10 / (100 * 0.031), 1e-9);
  // The engine's 30 sequences.
  EXPECT_NEAR(best_engine_rate(kPlainEngine, {100, 100}, objectives(1, 1)), 30 / (100 * 0.053), 1e-9);
  // Not even one request fits: its rate is used anyway.
  EXPECT_NEAR(best_engine_rate(kPlainEngine, {100, 100}, objectives(1, 0.001)), 1 / (100 * 0.0211), 1e-9);
}

// Given two engines with ITLs around 30 ms; expects one more only if both are above the objective; one fewer if both stay below
// 80 % of it with twice the load.
TEST(BaselineDynamo, StepsByOne) {
  const DynamoLengths lengths = {100, 100};  // a sequence holds 150 tokens
  const auto at = [&](int first, int second, double itl_s) {
    return load_decision(kPlainEngine, {{0, first * 150.0}, {0, second * 150.0}}, lengths, 0, objectives(1, itl_s));
  };
  EXPECT_EQ(at(10, 10, 0.030), 3);  // 31 ms each, including the next request
  EXPECT_EQ(at(10, 3, 0.030), 2);
  EXPECT_EQ(at(3, 3, 0.034), 1);  // 27 ms, below 27.2
  EXPECT_EQ(at(3, 3, 0.033), 2);
  // 500 tokens wait before 100 of its own: 10 ms and 60 ms.
  EXPECT_EQ(load_decision(kPlainEngine, {{500, 0}, {500, 0}}, lengths, 0, objectives(0.069, 1)), 3);
  EXPECT_EQ(load_decision(kPlainEngine, {{500, 0}, {0, 0}}, lengths, 0, objectives(0.069, 1)), 2);
  // A single engine stays.
  EXPECT_EQ(load_decision(kPlainEngine, {{0, 0}}, lengths, 0, objectives(1, 1)), 1);
}

// Given a line, a constant, too few values, and an alternating series; expects the next value; for too few values the last one.
TEST(BaselineDynamo, PredictsTheNextValue) {
  EXPECT_NEAR(predict_next({10, 20, 30, 40, 50, 60, 70, 80}, 5), 90, 1e-6);
  EXPECT_NEAR(predict_next({5, 5, 5, 5, 5, 5}, 5), 5, 1e-6);
  EXPECT_EQ(predict_next({1, 2, 9}, 5), 9);
  EXPECT_NEAR(predict_next({1, 3, 1, 3, 1, 3, 1, 3}, 5), 1, 1e-6);
  EXPECT_GE(predict_next({90, 70, 50, 30, 20, 10, 5, 0}, 5), 0);
}

// Given 180 s with 6 requests/s that one engine cannot serve; expects the bound to apply from the first decision after the
// interval, and no decision while workers start.
TEST(BaselineDynamo, JumpsToItsLowerBound) {
  DynamoOptions options = objectives(1, 0.0311);  // 3.23 requests/s per engine
  BaselineDynamo dynamo(plain_deployment(30), options);
  auto at = [](double now_s, std::vector<ObservedWorker> workers) {
    ClusterObservation seen = observed(now_s, std::move(workers));
    seen.services.front().arrived = static_cast<std::int64_t>(6 * now_s);
    seen.services.front().completed = static_cast<std::int64_t>(5 * now_s);
    seen.services.front().input_tokens = 100 * seen.services.front().completed;
    seen.services.front().output_tokens = 100 * seen.services.front().completed;
    return seen;
  };
  EXPECT_EQ(started(dynamo.decide(at(0, {ready_worker(0, 5)}))), 0);
  EXPECT_EQ(started(dynamo.decide(at(175, {ready_worker(0, 5)}))), 0);
  EXPECT_EQ(started(dynamo.decide(at(180, {ready_worker(0, 5)}))), 1);
  EXPECT_EQ(started(dynamo.decide(at(185, {ready_worker(0, 5), worker_in(WorkerPhase::kStarting, 1)}))), 0);
}

}  // namespace
}  // namespace windlass::sim
