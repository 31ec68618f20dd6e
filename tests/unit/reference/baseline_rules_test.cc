// The rules of llm-d's Workload Variant Autoscaler and of Dynamo's planner by hand.
#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/autoscalers/baseline_dynamo.h"
#include "tests/reference/autoscalers/baseline_wva.h"
#include "tests/unit/reference/baseline_fixture.h"

namespace windlass::sim {
namespace {

// S = 20 sequences of I + O / 2 = 300 tokens bind: 6,000 tokens a replica, below 0.8 * 10,000.
constexpr WvaEngine kEngine = {10'000, 20, 2048};
constexpr WvaLengths kLengths = {200, 200};

// Given: two replicas of 6,000 tokens. Expected: more as soon as the demand is above 85 % of them, as many as make up for it.
TEST(WvaRule, RequiresCapacity) {
  WvaRule rule({}, kEngine);
  EXPECT_EQ(rule.decide({{5000, 0}, {5000, 0}}, 0, 0, kLengths), 2);   // 10,000 / 0.85 = 11,765
  EXPECT_EQ(rule.decide({{5100, 0}, {5110, 0}}, 0, 0, kLengths), 3);   // 10,210 / 0.85 = 12,012
  EXPECT_EQ(rule.decide({{5000, 0}, {5000, 0}}, 0, 20, kLengths), 4);  // 20 wait: 18,000 / 0.85 = 21,176
  EXPECT_EQ(rule.decide({{5000, 0}, {5000, 0}}, 2, 20, kLengths), 4);  // of which two start already
  EXPECT_EQ(rule.decide({{5000, 1}, {5000, 0}}, 0, 0, kLengths), 2);   // one waits inside: 10,200 / 0.85 = 12,000
}

// Given: three replicas of 6,000 tokens. Expected: one fewer for each whole replica that 70 % of the rest would not need; one
// always stays.
TEST(WvaRule, GivesUpSpareCapacity) {
  WvaRule rule({}, kEngine);
  EXPECT_EQ(rule.decide({{3000, 0}, {3000, 0}, {3000, 0}}, 0, 0, kLengths), 3);  // 18,000 - 12,857 = 5,143
  EXPECT_EQ(rule.decide({{2800, 0}, {2800, 0}, {2800, 0}}, 0, 0, kLengths), 2);  // 18,000 - 12,000 = 6,000
  EXPECT_EQ(rule.decide({{0, 0}, {0, 0}, {0, 0}}, 0, 0, kLengths), 1);
  EXPECT_EQ(rule.decide({}, 1, 5, kLengths), 1);  // nothing is known of a capacity
}

// Given: a batch budget or memory that binds before the sequences do. Expected: the smaller one is the capacity.
TEST(WvaRule, TakesTheSmallestLimit) {
  // B O / (I + O) = 10 sequences of 300 tokens: 3,000.
  EXPECT_EQ(WvaRule({}, {10'000, 20, 20}).decide({{2600, 0}}, 0, 0, kLengths), 2);
  EXPECT_EQ(WvaRule({}, {10'000, 20, 20}).decide({{2500, 0}}, 0, 0, kLengths), 1);
  // 0.8 * 5,000.
  EXPECT_EQ(WvaRule({}, {5000, 20, 2048}).decide({{3500, 0}}, 0, 0, kLengths), 2);
}

// Given: five requests that wait inside a replica with 2,000 tokens in use. Expected: that is what a replica can hold, now and
// later.
TEST(WvaRule, LearnsWhatComputeAllows) {
  WvaRule rule({}, kEngine);
  EXPECT_EQ(rule.decide({{2000, 5}}, 0, 0, kLengths), 2);  // 3,000 / 0.85 = 3,529
  EXPECT_EQ(rule.decide({{1600, 0}, {1600, 0}}, 0, 0, kLengths), 2);
  EXPECT_EQ(rule.decide({{1800, 0}, {1800, 0}}, 0, 0, kLengths), 3);  // 3,600 / 0.85 = 4,235
}

// Given: peaks of the last minute, decisions every 30 s, an HPA behind them. Expected: a peak counts for a minute after; what
// is asked for is started at once, and given up only behind the HPA's window.
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

// Given: decode iterations of 20 ms and 1 ms a sequence, prompts of 100 tokens beside 100 tokens of output: b prompt tokens and
// so 0.1 ms b an iteration more. Expected: at 31 ms the largest batch is 10, and its rate 10 / (100 * 31 ms).
TEST(BaselineDynamo, FindsTheBestRate) {
  EXPECT_NEAR(best_engine_rate(kPlainEngine, {100, 100}, objectives(1, 0.0311)), 10 / (100 * 0.031), 1e-9);
  // The engine's 30 sequences.
  EXPECT_NEAR(best_engine_rate(kPlainEngine, {100, 100}, objectives(1, 1)), 30 / (100 * 0.053), 1e-9);
  // Not even one: its rate all the same.
  EXPECT_NEAR(best_engine_rate(kPlainEngine, {100, 100}, objectives(1, 0.001)), 1 / (100 * 0.0211), 1e-9);
}

// Given: two engines with ITLs around 30 ms. Expected: one more only when both are above the objective; one fewer when both
// stay below 80 % of it with twice the load.
TEST(BaselineDynamo, StepsByOne) {
  const DynamoLengths lengths = {100, 100};  // a sequence holds 150 tokens
  const auto at = [&](int first, int second, double itl_s) {
    return load_decision(kPlainEngine, {{0, first * 150.0}, {0, second * 150.0}}, lengths, 0, objectives(1, itl_s));
  };
  EXPECT_EQ(at(10, 10, 0.030), 3);  // 31 ms each, with the one that would come
  EXPECT_EQ(at(10, 3, 0.030), 2);
  EXPECT_EQ(at(3, 3, 0.034), 1);  // 27 ms, below 27.2
  EXPECT_EQ(at(3, 3, 0.033), 2);
  // 500 tokens wait before 100 own: 10 ms and 60 ms.
  EXPECT_EQ(load_decision(kPlainEngine, {{500, 0}, {500, 0}}, lengths, 0, objectives(0.069, 1)), 3);
  EXPECT_EQ(load_decision(kPlainEngine, {{500, 0}, {0, 0}}, lengths, 0, objectives(0.069, 1)), 2);
  // A single engine stays.
  EXPECT_EQ(load_decision(kPlainEngine, {{0, 0}}, lengths, 0, objectives(1, 1)), 1);
}

// Given: a line, a constant, too few values, and an alternating series. Expected: its next value; the last one of too few.
TEST(BaselineDynamo, PredictsTheNextValue) {
  EXPECT_NEAR(predict_next({10, 20, 30, 40, 50, 60, 70, 80}, 5), 90, 1e-6);
  EXPECT_NEAR(predict_next({5, 5, 5, 5, 5, 5}, 5), 5, 1e-6);
  EXPECT_EQ(predict_next({1, 2, 9}, 5), 9);
  EXPECT_NEAR(predict_next({1, 3, 1, 3, 1, 3, 1, 3}, 5), 1, 1e-6);
  EXPECT_GE(predict_next({90, 70, 50, 30, 20, 10, 5, 0}, 5), 0);
}

// Given: 180 s with 6 requests/s that one engine cannot serve. Expected: the bound is in force with the next look after the
// interval, and while workers start nothing is decided.
TEST(BaselineDynamo, JumpsToItsLowerBound) {
  DynamoOptions options = objectives(1, 0.0311);  // 3.23 requests/s an engine
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
