// Tests requests over pairs of a prefill and a decode pool: in proportion to weights, each pair with its own path.
#include <map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/sim/serving_simulation.h"
#include "tests/list_source.h"
#include "tests/unit/planner/sim/serving_fixture.h"

namespace windlass::sim {
namespace {

using testing::HasSubstr;

// Two prefill and two decode pools of one worker each; workers 0, 1 prefill and 2, 3 decode.
ServingOptions paired(const Line& model, std::vector<PoolPair> pairs) {
  ServingOptions options;
  options.pools = {pool_of(model, dispatch::Role::kPrefill, 1), pool_of(model, dispatch::Role::kPrefill, 1),
                   pool_of(model, dispatch::Role::kDecode, 1), pool_of(model, dispatch::Role::kDecode, 1)};
  options.link.kv_bytes_per_token = 100;
  options.dispatch.decode_choice = dispatch::DecodeChoice::kPairs;
  options.pairs = std::move(pairs);
  return options;
}

// One request of the given lengths every `gap_s`.
std::vector<workload::Request> steady(int count, double gap_s, int input, int output) {
  std::vector<workload::Request> requests;
  for (int i = 0; i < count; ++i) requests.push_back({i * gap_s, 1, input, output});
  return requests;
}

// Given three of four pairs with weights; expects each to get its share, the fourth none, and no two consecutive requests on a
// pair with less than half the weight.
TEST(ServingPairs, TakeTheirShares) {
  Line model;
  ServingOptions options = paired(model, {{0, 2, 5, {}}, {0, 3, 1, {}}, {1, 3, 4, {}}});
  Witness witness;
  options.observer = &witness;
  ListSource source(steady(1000, 0.1, 100, 20));
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->completed, 1000);
  std::map<std::pair<int, int>, int> taken;
  std::vector<std::pair<int, int>> order(1000);
  for (const ServedRequest& request : witness.requests) {
    const std::pair<int, int> pair = {request.prefill_worker, request.decode_worker};
    ++taken[pair];
    order[static_cast<std::size_t>(request.number)] = pair;
  }
  const std::map<std::pair<int, int>, int> expected = {{{0, 2}, 500}, {{0, 3}, 100}, {{1, 3}, 400}};
  EXPECT_EQ(taken, expected);
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i] != std::pair(0, 2)) {
      EXPECT_NE(order[i], order[i - 1]) << i;
    }
  }
}

// Given two pairs with different paths; expects the time between a request's first and second token to include its own pair's
// transfer.
TEST(ServingPairs, HavePathsOfTheirOwn) {
  Line model;
  const planner::KvTransferPath fast{1e6, 0, 0, 0}, slow{1e4, 0.5, 0, 0};  // 0.01 s and 1.5 s for 100 tokens of 100 bytes
  ServingOptions options = paired(model, {{0, 2, 1, fast}, {1, 3, 1, slow}});
  Witness witness;
  options.observer = &witness;
  ListSource source(steady(20, 5, 100, 2));
  ASSERT_TRUE(simulate_serving(source, options).ok());
  ASSERT_EQ(witness.requests.size(), 20U);
  const double decode_s = model.base_s + model.per_decode_s;
  for (const ServedRequest& request : witness.requests) {
    EXPECT_NEAR(request.tbt_s, (request.prefill_worker == 0 ? 0.01 : 1.5) + decode_s, 1e-6);
  }
}

// Given caches that arrive faster than their path can transfer them; expects them one after another, at the path's rate.
TEST(ServingPairs, APathCarriesOneCacheAtATime) {
  Line model;
  model.base_s = 0.001;
  model.per_prompt_token_s = 1e-6;
  const planner::KvTransferPath path{1e4, 0, 0, 0};  // a cache a second
  ServingOptions options = paired(model, {{0, 2, 1, path}, {1, 3, 1, path}});
  ListSource source(steady(40, 0.01, 100, 2));
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 40);
  EXPECT_NEAR(result->simulated_s, 20, 0.1);  // 40 caches over two paths
  EXPECT_NEAR(result->tbt.p99_s, 20, 0.5);
}

// Given a decode worker that fails and restarts; expects its pair's requests to use the other pair meanwhile, and only requests
// that were streaming to be lost.
TEST(ServingPairs, SkipAMissingWorker) {
  Line model;
  ServingOptions options = paired(model, {{0, 2, 1, {}}, {1, 3, 1, {}}});
  options.pools[2].start_s = 10;
  options.failures.at = {{20.05, 2}};
  Witness witness;
  options.observer = &witness;
  ListSource source(steady(500, 0.1, 10, 2));
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed + result->failed, 500);
  EXPECT_LE(result->failed, 1);
  int by_first = 0, by_second = 0;
  for (const ServedRequest& request : witness.requests) {
    if (request.arrival_s < 20.1 || request.arrival_s > 30) continue;
    ++(request.prefill_worker == 0 ? by_first : by_second);
  }
  EXPECT_EQ(by_first, 0);
  EXPECT_GE(by_second, 98);
}

// Given that both workers of a role are missing; expects requests to wait for them. Given a request longer than any cache;
// expects it to be refused.
TEST(ServingPairs, WaitOrAreRefused) {
  Line model;
  model.capacity_tokens = 1000;
  ServingOptions options = paired(model, {{0, 2, 1, {}}, {1, 2, 1, {}}});
  options.pools.pop_back();
  options.pools[2].start_s = 10;
  options.failures.at = {{1, 2}};
  ListSource source({{2, 1, 100, 10}, {3, 1, 900, 200}, {4, 1, 900, 1}});
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->completed, 2);
  EXPECT_EQ(result->refused, 1);
  EXPECT_GT(result->ttft.p99_s, 7);
}

// Given invalid pairs; expects the field, the value and the rule.
TEST(ServingPairs, NamesMistakes) {
  Line model;
  const auto refusal = [&](ServingOptions options) {
    ListSource source({});
    const auto result = simulate_serving(source, options);
    return result.ok() ? "" : result.error().message;
  };
  EXPECT_THAT(refusal(paired(model, {})), HasSubstr("pairs: must have at least one pair"));
  EXPECT_THAT(refusal(paired(model, {{2, 3, 1, {}}})),
              HasSubstr("pairs[0].prefill: must be the index of a prefill pool (got 2)"));
  EXPECT_THAT(refusal(paired(model, {{0, 4, 1, {}}})),
              HasSubstr("pairs[0].decode: must be the index of a decode pool (got 4)"));
  EXPECT_THAT(refusal(paired(model, {{0, 2, 0, {}}})), HasSubstr("pairs[0].weight: must be a number above 0 (got 0)"));
  EXPECT_THAT(refusal(paired(model, {{0, 2, 1, {1, -1, 0, 0}}})),
              HasSubstr("pairs[0].path.latency: must be a time of at least 0 (got -1 s)"));
  ServingOptions options = paired(model, {{0, 2, 1, {}}});
  options.dispatch.flip = dispatch::FlipPolicy{};
  EXPECT_THAT(refusal(options), HasSubstr("pairs: must be empty if workers can change their role"));
  options = paired(model, {{0, 2, 1, {}}});
  options.dispatch.decode_choice = dispatch::DecodeChoice::kAtArrival;
  EXPECT_THAT(refusal(options), HasSubstr("pairs: must be empty, as the decode choice is not pairs"));
}

}  // namespace
}  // namespace windlass::sim
