// Tests of Huawei's scheduler (Eq. 5 to 8, Alg. 2): by hand, against its definition, with little information, and against the
// policies that the paper compares it with.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/policies.h"
#include "tests/effort.h"

namespace windlass::dispatch {
namespace {

using Chains = std::vector<ChainState>;

PackingModel model_of(double slower, double kv_tokens) {
  PackingModel model;
  model.prefill_token_s = 1e-4 * slower;
  model.prefill_request_s = 1e-3;
  model.prefill_length_s = 2e-5;
  model.prefill_s = 5e-3;
  model.context_token_s = 2e-7 * slower;
  model.decode_request_s = 1e-4;
  model.context_length_s = 1e-6;
  model.decode_s = 1e-2 * slower;
  model.kv_capacity_tokens = kv_tokens;
  return model;
}

// Given eight coefficients; expects the sums of Eq. 3 and 4, term by term.
TEST(BatchTimes, AreThePapersSums) {
  const BatchTimes times = batch_times(model_of(3, 1000));
  for (const double batch : {1.0, 2.5, 64.0}) {
    for (const int input : {1, 17, 900}) {
      EXPECT_DOUBLE_EQ(times.prefill_time_s(batch, input), times.prefill_token_s * batch * input +
                                                               times.prefill_request_s * batch +
                                                               times.prefill_length_s * input + times.prefill_s);
      for (const int output : {1, 2, 333}) {
        double sum = 0;
        for (int k = 1; k <= output; ++k) {
          sum += times.context_token_s * batch * (input + k) + times.decode_request_s * batch +
                 times.context_length_s * (input + k) + times.decode_s;
        }
        EXPECT_NEAR(times.decode_time_s(batch, input, output), sum, 1e-9 * sum);
      }
    }
  }
  EXPECT_TRUE(times.known());
  EXPECT_FALSE(BatchTimes{}.known());
}

// Given a cache of 1,000 tokens and requests of 50 + 50; expects the time of a batch of 10, divided by 10 (Eq. 5, 6). Given
// requests larger than the cache; expects a batch of one. Given a cache larger than the engine's limit; expects a batch of that
// limit. Given one phase; expects that phase's part.
TEST(BatchTimes, AreSharedByAFullCache) {
  const BatchTimes times = batch_times(model_of(1, 1000));
  const auto batch_s = [&](double batch, double input, double output) {
    return times.prefill_time_s(batch, input) + times.decode_time_s(batch, input, output);
  };
  EXPECT_DOUBLE_EQ(request_workload_s(times, 1000, 256, 50, 50), batch_s(10, 50, 50) / 10);
  EXPECT_DOUBLE_EQ(request_workload_s(times, 1000, 4, 50, 50), batch_s(4, 50, 50) / 4);
  EXPECT_DOUBLE_EQ(request_workload_s(times, 1000, 256, 900, 900), batch_s(1, 900, 900));
  EXPECT_DOUBLE_EQ(request_workload_s(times, 0, 8, 50, 50), batch_s(8, 50, 50) / 8);
  EXPECT_DOUBLE_EQ(request_workload_s(times, 1000, 256, 50, 50, PackingPhase::kPrefill), times.prefill_time_s(10, 50) / 10);
  EXPECT_DOUBLE_EQ(request_workload_s(times, 1000, 256, 50, 50, PackingPhase::kDecode), times.decode_time_s(10, 50, 50) / 10);
}

// Given two instances and three requests; expects w = T e^(2 kvusage) with the tokens promised before (Eq. 7, 8), and loads
// that fall by exactly as much as they rose when requests end, in any order.
TEST(HuaweiPolicy, CountsWorkloadsByHand) {
  const PackingModel fast = model_of(1, 4000), slow = model_of(4, 1000);
  Chains chains = {{1, 256, 0, false, 7, &fast}, {1, 256, 0, false, 9, &slow}};
  HuaweiPolicy policy({}, Rng(1, "unused"));
  policy.reset(chains);
  const double t = request_workload_s(batch_times(fast), 4000, 256, 300, 100);
  policy.placed(0, {1, 300, 100});
  EXPECT_DOUBLE_EQ(policy.load(0), t);
  EXPECT_DOUBLE_EQ(policy.kv_usage(0), 0.1);
  policy.placed(0, {2, 300, 100});
  EXPECT_DOUBLE_EQ(policy.load(0), t + t * std::exp(0.2));
  policy.placed(1, {3, 600, 600});
  EXPECT_DOUBLE_EQ(policy.kv_usage(1), 1.2) << "above 1: some of it waits";
  EXPECT_DOUBLE_EQ(policy.workload(1, 600, 600),
                   request_workload_s(batch_times(slow), 1000, 256, 600, 600) * std::exp(2 * 1.2));
  policy.ended(1, 90);
  EXPECT_NEAR(policy.load(0), t * std::exp(0.2), 1e-12) << "its own w goes, not the other's";
  EXPECT_DOUBLE_EQ(policy.kv_usage(0), 0.1);
  policy.ended(2, 0);
  EXPECT_EQ(policy.load(0), 0);
  EXPECT_EQ(policy.kv_usage(0), 0);
  policy.ended(2, 0);  // has already ended
  policy.ended(99, 5);
  EXPECT_EQ(policy.load(0), 0);
  EXPECT_GT(policy.load(1), 0);
}

// Alg. 2 as written.
class Algorithm2 {
 public:
  Algorithm2(const std::vector<PackingModel>& models, double theta, bool memory_only)
      : models_(models), theta_(theta), memory_only_(memory_only), loads_(models.size()), lengths_(models.size()) {}

  // The largest load if `s` took the request.
  [[nodiscard]] double largest_with(std::size_t s, const RequestLengths& request) const {
    double largest = loads_[s] + workload(s, request);
    for (const double load : loads_) largest = std::max(largest, load);
    return largest;
  }
  void take(std::size_t s, const RequestLengths& request) {
    hooks_[request.id] = {s, workload(s, request), request.input_tokens + request.output_tokens};
    loads_[s] += hooks_[request.id].workload;
    lengths_[s] += hooks_[request.id].tokens;
  }
  void complete(std::uint64_t id) {
    const Hook hook = hooks_.at(id);
    loads_[hook.instance] -= hook.workload;
    lengths_[hook.instance] -= hook.tokens;
    hooks_.erase(id);
  }
  [[nodiscard]] double load(std::size_t s) const { return loads_[s]; }
  [[nodiscard]] double workload(std::size_t s, const RequestLengths& request) const {
    const PackingModel& model = models_[s];
    const double time_s = memory_only_ ? 1
                                       : request_workload_s(batch_times(model), model.kv_capacity_tokens, model.max_requests,
                                                            request.input_tokens, request.output_tokens);
    return time_s * std::exp(theta_ * lengths_[s] / model.kv_capacity_tokens);
  }

 private:
  struct Hook {
    std::size_t instance = 0;
    double workload = 0;
    int tokens = 0;
  };
  std::vector<PackingModel> models_;
  double theta_;
  bool memory_only_;
  std::vector<double> loads_, lengths_;
  std::map<std::uint64_t, Hook> hooks_;
};

// Given random histories of arrivals and completions on up to six instances, under both policies; expects each choice to leave
// the smallest maximum load of Alg. 2 and, among equal ones, the smallest own load; and loads as in Alg. 2.
TEST(HuaweiPolicy, FollowsAlgorithm2) {
  for (const bool memory_only : {false, true}) {
    for (std::uint64_t seed = 1; seed <= effort(25U, 200U); ++seed) {
      SCOPED_TRACE(seed);
      Rng rng(seed, "history");
      std::vector<PackingModel> models;
      Chains chains;
      for (auto n = rng.integer(1, 6); n > 0; --n) models.push_back(model_of(rng.uniform(1, 8), rng.uniform(6000, 60'000)));
      for (std::size_t s = 0; s < models.size(); ++s) chains.push_back({1, 256, 0, false, s, &models[s]});
      HuaweiRules rules;
      rules.theta = rng.uniform(0.5, 4);
      rules.memory_only = memory_only;
      HuaweiPolicy policy(rules, Rng(1, "unused"));
      policy.reset(chains);
      Algorithm2 definition(models, rules.theta, memory_only);
      std::vector<std::pair<std::uint64_t, std::size_t>> running;
      for (std::uint64_t id = 0; id < 150; ++id) {
        const RequestLengths request{id, static_cast<int>(rng.integer(1, 2000)), static_cast<int>(rng.integer(1, 2000))};
        const std::size_t chosen = policy.choose_for(request, 0).value();
        double least = std::numeric_limits<double>::infinity(), own = least;
        for (std::size_t s = 0; s < models.size(); ++s) least = std::min(least, definition.largest_with(s, request));
        for (std::size_t s = 0; s < models.size(); ++s) {
          if (definition.largest_with(s, request) > least * (1 + 1e-9)) continue;
          own = std::min(own, definition.load(s) + definition.workload(s, request));
        }
        ASSERT_LE(definition.largest_with(chosen, request), least * (1 + 1e-9));
        ASSERT_LE(definition.load(chosen) + definition.workload(chosen, request), own * (1 + 1e-9));
        ++chains[chosen].in_flight;
        policy.update(chosen, chains[chosen]);
        policy.placed(chosen, request);
        definition.take(chosen, request);
        running.emplace_back(id, chosen);
        while (!running.empty() && rng.uniform() < 0.45) {
          const auto at = running.begin() + rng.integer(0, static_cast<std::int64_t>(running.size()) - 1);
          --chains[at->second].in_flight;
          policy.update(at->second, chains[at->second]);
          policy.ended(at->first, 100);
          definition.complete(at->first);
          running.erase(at);
        }
        for (std::size_t s = 0; s < models.size(); ++s) {
          ASSERT_NEAR(policy.load(s), definition.load(s), 1e-9 * (1 + definition.load(s)));
        }
      }
    }
  }
}

// Given an idle slow instance and an idle fast one; expects the fast one. Given a fast one whose cache is promised several
// times; expects the slow one. Given that all drain; expects none.
TEST(HuaweiPolicy, WeighsSpeedAndMemory) {
  const PackingModel fast = model_of(1, 8000), slow = model_of(4, 8000);
  Chains chains = {{1, 256, 0, false, 1, &slow}, {1, 256, 0, false, 2, &fast}};
  HuaweiPolicy policy({}, Rng(1, "unused"));
  policy.reset(chains);
  EXPECT_EQ(policy.choose_for({1, 500, 500}, 0), 1U);
  for (std::uint64_t id = 10; id < 40; ++id) policy.placed(1, {id, 500, 500});
  EXPECT_EQ(policy.choose_for({2, 500, 500}, 0), 0U);
  for (ChainState& chain : chains) chain.draining = true;
  policy.update(0, chains[0]);
  EXPECT_EQ(policy.choose_for({2, 500, 500}, 0), 1U);
  policy.update(1, chains[1]);
  EXPECT_EQ(policy.choose_for({2, 500, 500}, 0), std::nullopt);
}

// Given a request that only the slow instance's cache can hold; expects that one, however loaded. Given one that no cache can
// hold; expects some instance anyway, because predictions may be wrong.
TEST(HuaweiPolicy, SkipsCachesThatAreTooSmall) {
  const PackingModel fast = model_of(1, 900), slow = model_of(8, 9000);
  const Chains chains = {{1, 256, 0, false, 1, &fast}, {1, 256, 0, false, 2, &slow}};
  HuaweiPolicy policy({}, Rng(1, "unused"));
  policy.reset(chains);
  for (std::uint64_t id = 10; id < 20; ++id) policy.placed(1, {id, 500, 500});
  EXPECT_EQ(policy.choose_for({1, 300, 300}, 0), 0U);
  EXPECT_EQ(policy.choose_for({2, 600, 600}, 0), 1U);
  EXPECT_TRUE(policy.choose_for({3, 60'000, 600}, 0).has_value());
}

// Given chains with nothing known except slots and rates, and requests without events; expects requests in proportion to rate x
// slots, and finite loads with thousands of requests at one slot.
TEST(HuaweiPolicy, WorksWithSlotsAndRatesAlone) {
  Chains chains = {{1, 8, 0, false}, {3, 8, 0, false}, {1, 32, 0, false}};
  HuaweiPolicy policy({}, Rng(1, "unused"));
  policy.reset(chains);
  for (int i = 0; i < 16; ++i) {
    const std::size_t chosen = policy.choose().value();
    ++chains[chosen].in_flight;
    policy.update(chosen, chains[chosen]);
  }
  EXPECT_GE(chains[0].in_flight, 1);
  EXPECT_LT(chains[0].in_flight, chains[1].in_flight);
  EXPECT_LT(chains[1].in_flight, chains[2].in_flight);

  Chains single = {{1, 1, 5000, false}, {1, 1, 6000, false}};
  policy.reset(single);
  EXPECT_TRUE(std::isfinite(policy.load(0)));
  EXPECT_LT(policy.load(0), policy.load(1));
  EXPECT_EQ(policy.choose(), 0U);
}

// Given reported requests and further occupied slots; expects both to count, and a slot taken before its request is reported to
// count once.
TEST(HuaweiPolicy, CountsUnreportedRequests) {
  Chains chains = {{2, 4, 0, false}};
  HuaweiPolicy policy({}, Rng(1, "unused"));
  policy.reset(chains);
  chains[0].in_flight = 1;
  policy.update(0, chains[0]);
  policy.placed(0, {1, 10, 10});
  const double t = 1 / (2.0 * 4);
  EXPECT_DOUBLE_EQ(policy.load(0), t);
  chains[0].in_flight = 3;
  policy.update(0, chains[0]);
  EXPECT_DOUBLE_EQ(policy.load(0), t + t * (1 + std::exp(2 * 0.25)));
  EXPECT_DOUBLE_EQ(policy.kv_usage(0), 0.75);
}

// Given a reset in which chains change places, one goes and one comes; expects loads to follow their keys, a returning chain to
// keep its load, and requests of a removed chain to end without harm.
TEST(HuaweiPolicy, KeepsLoadsOverResets) {
  const PackingModel model = model_of(1, 10'000);
  const auto chain = [&](std::uint64_t key) { return ChainState{1, 256, 0, false, key, &model}; };
  HuaweiPolicy policy({}, Rng(1, "unused"));
  policy.reset(Chains{chain(1), chain(2)});
  policy.placed(0, {10, 100, 100});
  policy.placed(1, {20, 2000, 100});
  const double first = policy.load(0), second = policy.load(1);
  policy.reset(Chains{chain(3), chain(1)});
  EXPECT_EQ(policy.load(0), 0);
  EXPECT_EQ(policy.load(1), first);
  policy.reset(Chains{chain(2), chain(3), chain(1)});
  EXPECT_EQ(policy.load(0), second);
  EXPECT_EQ(policy.load(2), first);
  policy.reset(Chains{chain(1)});
  policy.ended(20, 7);
  policy.reset(Chains{chain(1), chain(2)});
  EXPECT_EQ(policy.load(0), first);
  EXPECT_EQ(policy.load(1), 0);
  policy.ended(10, 7);
  EXPECT_EQ(policy.load(0), 0);
}

// Given no history; expects the assumed length, then that of served requests. Given drawn outputs; expects the same draw for
// the choice and for the placed request, and a mean close to the distribution's.
TEST(HuaweiPolicy, PredictsOutputs) {
  const PackingModel model = model_of(1, 1'000'000);
  const Chains chains = {{1, 1000, 0, false, 1, &model}};
  HuaweiRules rules;
  rules.assumed_output_tokens = 700;
  HuaweiPolicy policy(rules, Rng(1, "unused"));
  policy.reset(chains);
  policy.placed(0, {1, 300, 0});
  EXPECT_DOUBLE_EQ(policy.kv_usage(0), 1000.0 / 1e6);
  policy.ended(1, 0);
  for (std::uint64_t id = 2; id < 200; ++id) {
    policy.placed(0, {id, 300, 0});
    policy.ended(id, 100);
  }
  policy.placed(0, {1000, 300, 0});
  EXPECT_NEAR(policy.kv_usage(0) * 1e6, 400, 5);

  HuaweiRules drawing;
  drawing.drawn_outputs = HuaweiRules::NormalOutputs{200, 50};
  HuaweiPolicy drawn(drawing, Rng(1, "drawn"));
  drawn.reset(chains);
  double sum = 0;
  for (std::uint64_t id = 0; id < 2000; ++id) {
    const double before = drawn.kv_usage(0);
    static_cast<void>(drawn.choose_for({id, 100, 0}, 0));
    drawn.placed(0, {id, 100, 0});
    sum += (drawn.kv_usage(0) - before) * 1e6 - 100;
    drawn.ended(id, 3);
  }
  EXPECT_NEAR(sum / 2000, 200, 5);
}

// Given weights 4, 1 and 1; expects four, one and one of each six consecutive requests, and a returning chain not to catch up.
// Given no weights; expects shares by rate x slots.
TEST(WeightedRoundRobin, GivesEachItsShare) {
  Chains chains(3, ChainState{1, 1, 9, false});
  chains[0].weight = 4;
  chains[1].weight = chains[2].weight = 1;
  const auto policy = make_policy(PolicyKind::kWeightedRoundRobin, Rng(1, "unused"));
  policy->reset(chains);
  for (int round = 0; round < 20; ++round) {
    std::vector<int> got(3);
    for (int i = 0; i < 6; ++i) ++got[policy->choose().value()];
    EXPECT_EQ(got, (std::vector<int>{4, 1, 1}));
  }
  chains[1].draining = true;
  policy->update(1, chains[1]);
  for (int i = 0; i < 100; ++i) EXPECT_NE(policy->choose(), 1U);
  chains[1].draining = false;
  policy->update(1, chains[1]);
  int back = 0;
  for (int i = 0; i < 60; ++i) back += policy->choose() == 1U ? 1 : 0;
  EXPECT_NEAR(back, 10, 1);

  policy->reset(Chains{{2, 3, 0, false}, {1, 2, 0, false}});
  std::vector<int> got(2);
  for (int i = 0; i < 80; ++i) ++got[policy->choose().value()];
  EXPECT_EQ(got, (std::vector<int>{60, 20}));
}

// Given chains with different weights; expects only the strongest, full or not, and the next one when it drains.
TEST(SingleInstance, IsTheStrongest) {
  Chains chains = {{1, 4, 0, false}, {2, 4, 99, false}, {1, 8, 0, false}, {1, 1, 0, false}};
  const auto policy = make_policy(PolicyKind::kSingleInstance, Rng(1, "unused"));
  policy->reset(chains);
  EXPECT_EQ(policy->choose(), 1U);
  chains[1].draining = true;
  policy->update(1, chains[1]);
  EXPECT_EQ(policy->choose(), 2U);
  chains[3].weight = 100;
  policy->reset(chains);
  EXPECT_EQ(policy->choose(), 3U);
}

}  // namespace
}  // namespace windlass::dispatch
