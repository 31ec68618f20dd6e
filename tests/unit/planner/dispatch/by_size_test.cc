// Tests that BySize sends each size where it is comparatively cheap, fills no kind too much, and counts correctly.
#include "planner/dispatch/by_size.h"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass::dispatch {
namespace {

// A slow kind that is good at short prompts, and a kind that is six times as fast for prompts and twice as fast for decodes.
constexpr PackingModel kSmall = {3e-4, 0.01, 1e-7, 4e-4, 0.02, 60'000, 16, 128};
constexpr PackingModel kLarge = {5e-5, 0.005, 5e-8, 2e-4, 0.01, 400'000, 16, 256};
constexpr PackingRules kRules = {2, 0.06, 0.5, 0.9, PackingPhase::kBoth};

std::vector<ChainState> chains(int small, int large) {
  std::vector<ChainState> made;
  for (int i = 0; i < small + large; ++i) {
    const PackingModel& model = i < small ? kSmall : kLarge;
    made.push_back({1, model.max_requests, 0, false, static_cast<std::uint64_t>(i), &model});
  }
  return made;
}

// Given lengths; expects the time of the prompt and its share of iterations at the largest batch within TPOT. Given a request
// too large for the cache; expects infinity. Given one that misses an objective; expects a hundred times as much.
TEST(BySize, WorkerSecondsAreTheLines) {
  // Batch: (0.06 - 0.02) / (4e-4 + 1e-7 * 1050) = 79.2, or 60,000 / 1,066 = 56.3 by the cache.
  const double each = 4e-4 + 1e-7 * 1050, batch = 60'000 / 1066.0;
  EXPECT_NEAR(worker_seconds(kSmall, kRules, 1000, 100), 0.01 + 0.3 + 99 * (0.02 / batch + each), 1e-9);
  EXPECT_EQ(worker_seconds(kSmall, kRules, 60'000, 100), std::numeric_limits<double>::infinity());
  EXPECT_GT(worker_seconds(kSmall, kRules, 10'000, 1), 100 * 3);  // its prompt takes 3 s; 2 s are allowed
  PackingRules strict = kRules;
  strict.tpot_s = 0.015;
  EXPECT_GT(worker_seconds(kSmall, strict, 100, 100), 100 * 99 * 0.02);
  EXPECT_LT(worker_seconds(kLarge, strict, 100, 100), 5);
}

// Given a stream of short and long requests that end over time; expects long ones on large workers, short ones mostly on small
// ones, and both kinds about equally full.
TEST(BySize, SendsEachSizeWhereItIsCheap) {
  BySize policy(kRules);
  std::vector<ChainState> states = chains(6, 2);
  policy.reset(states);
  Rng rng(5, "sizes");
  struct Running {
    std::size_t chain = 0;
    int steps = 0, output = 0;
    std::uint64_t id = 0;
  };
  std::vector<Running> running;
  std::map<std::pair<bool, bool>, int> counts;  // (is long, on a large worker)
  std::uint64_t id = 0;
  for (int step = 0; step < 4000; ++step) {
    const bool is_long = rng.uniform() < 0.3;
    const RequestLengths request{++id, is_long ? 4000 : 200, is_long ? 200 : 100};
    const auto chosen = policy.choose_for(request, 0);
    ASSERT_TRUE(chosen.has_value());
    policy.placed(*chosen, request);
    ++states[*chosen].in_flight;
    policy.update(*chosen, states[*chosen]);
    if (step > 500) ++counts[{is_long, *chosen >= 6}];
    running.push_back({*chosen, static_cast<int>(100 + rng.integer(0, 100)), request.output_tokens, id});
    std::erase_if(running, [&](Running& one) {
      if (--one.steps > 0) return false;
      policy.ended(one.id, one.output);
      --states[one.chain].in_flight;
      policy.update(one.chain, states[one.chain]);
      return true;
    });
  }
  const auto share = [&](bool is_long) {
    return counts[{is_long, true}] / static_cast<double>(counts[{is_long, true}] + counts[{is_long, false}]);
  };
  EXPECT_GT(share(true), 0.7);
  EXPECT_LT(share(false), 0.5);
  for (std::size_t k = 0; k < 6; ++k) EXPECT_GT(states[k].in_flight, 3) << k;
}

// Given a kind that appears after many requests; expects it to be chosen.
TEST(BySize, TakesUpANewKind) {
  BySize policy(kRules);
  std::vector<ChainState> states = chains(2, 1);
  policy.reset(states);
  std::uint64_t id = 0;
  const auto place = [&] {
    const RequestLengths request{++id, 1000, 100};
    const std::size_t k = policy.choose_for(request, 0).value();
    policy.placed(k, request);
    ++states[k].in_flight;
    policy.update(k, states[k]);
    return k;
  };
  for (int i = 0; i < 60; ++i) (void)place();
  PackingModel other = kLarge;
  other.decode_s = 0.011;
  states.push_back({1, 256, 0, false, 99, &other});
  policy.reset(states);
  int chosen = 0;
  for (int i = 0; i < 20; ++i) chosen += place() == 3 ? 1 : 0;
  EXPECT_GE(chosen, 10);
}

// Given requests that are placed and end while chains come and go; expects the same choices as from a policy that receives only
// the final state, so nothing is counted twice or forgotten.
TEST(BySize, KeepsItsAccounts) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed, "accounts");
    BySize policy(kRules);
    std::vector<ChainState> states = chains(3, 2);
    policy.reset(states);
    std::map<std::uint64_t, std::pair<std::size_t, RequestLengths>> here;
    for (std::uint64_t id = 1; id <= 200; ++id) {
      const RequestLengths request{id, static_cast<int>(rng.integer(1, 3000)), static_cast<int>(rng.integer(1, 300))};
      const auto k = policy.choose_for(request, 0);
      ASSERT_TRUE(k.has_value());
      policy.placed(*k, request);
      ++states[*k].in_flight;
      policy.update(*k, states[*k]);
      here.emplace(id, std::pair(*k, request));
      if (rng.uniform() < 0.8) {
        const auto gone = std::next(here.begin(), rng.integer(0, static_cast<std::int64_t>(here.size()) - 1));
        policy.ended(gone->first, 0);
        const std::size_t at = gone->second.first;
        --states[at].in_flight;
        policy.update(at, states[at]);
        here.erase(gone);
      }
      if (rng.uniform() < 0.05) policy.reset(states);
    }
    // Within one kind the choice depends on fill, which depends on the counts.
    std::vector<ChainState> small(states.begin(), states.begin() + 3);
    BySize fresh(kRules);
    fresh.reset(small);
    for (const auto& [id, placed] : here) {
      if (placed.first < 3) fresh.placed(placed.first, placed.second);
    }
    policy.reset(small);
    for (int i = 0; i < 20; ++i) {
      const RequestLengths request{1000 + static_cast<std::uint64_t>(i), 500, 50};
      const auto a = policy.choose_for(request, 0), b = fresh.choose_for(request, 0);
      ASSERT_EQ(a, b) << seed;
      ++small[*a].in_flight;
      for (BySize* one : {&policy, &fresh}) {
        one->placed(*a, request);
        one->update(*a, small[*a]);
      }
    }
  }
}

}  // namespace
}  // namespace windlass::dispatch
