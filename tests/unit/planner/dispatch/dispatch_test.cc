// Tests of the dispatch policies: choices in small cases, and each policy against its definition over random histories.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/index_set.h"
#include "planner/dispatch/policies.h"
#include "planner/dispatch/ranked_set.h"
#include "tests/effort.h"

namespace windlass::dispatch {
namespace {

using Chains = std::vector<ChainState>;
using Choice = std::optional<std::size_t>;

Choice choice(PolicyKind kind, const Chains& chains) {
  const auto policy = make_policy(kind, Rng(1, "choice"));
  policy->reset(chains);
  return policy->choose();
}

// Given chains with different speeds; expects the fastest with a free slot, the first on a tie, and none if all are full or
// drain.
TEST(Jffc, TakesTheFastestFree) {
  Chains chains = {{1, 2, 0, false}, {3, 1, 0, false}, {3, 4, 0, false}, {9, 8, 0, true}};
  EXPECT_EQ(choice(PolicyKind::kJffc, chains), 1U);
  chains[1].in_flight = 1;
  EXPECT_EQ(choice(PolicyKind::kJffc, chains), 2U);
  chains[2].in_flight = 5;
  EXPECT_EQ(choice(PolicyKind::kJffc, chains), 0U) << "more in flight than a lowered capacity is not free";
  chains[0].in_flight = 2;
  EXPECT_EQ(choice(PolicyKind::kJffc, chains), std::nullopt);
  EXPECT_EQ(choice(PolicyKind::kJffc, {}), std::nullopt);
}

// Given equally fast chains with free slots; expects the one with the smallest share of them taken, then the first. A faster
// chain goes before an emptier one.
TEST(Jffc, GivesTiesToTheEmptiest) {
  Chains chains = {{1, 4, 2, false}, {1, 8, 3, false}, {1, 8, 3, false}};
  EXPECT_EQ(choice(PolicyKind::kJffc, chains), 1U);
  chains[0].in_flight = 1;
  EXPECT_EQ(choice(PolicyKind::kJffc, chains), 0U);
  chains.push_back({2, 8, 7, false});
  EXPECT_EQ(choice(PolicyKind::kJffc, chains), 3U);
}

// Given chains with slots; expects the least loaded for its size, the first on a tie, never a draining one, and none if all
// drain.
TEST(Jsq, TakesTheLeastLoaded) {
  Chains chains = {{1, 4, 2, false}, {1, 8, 3, false}, {1, 8, 3, false}, {1, 8, 0, true}};
  EXPECT_EQ(choice(PolicyKind::kJsq, chains), 1U);
  chains[1].in_flight = 4;
  chains[2].in_flight = 4;
  EXPECT_EQ(choice(PolicyKind::kJsq, chains), 0U);
  for (ChainState& chain : chains) chain.in_flight = 100;
  EXPECT_EQ(choice(PolicyKind::kJsq, chains), 1U) << "full chains take requests too";
  for (ChainState& chain : chains) chain.draining = true;
  EXPECT_EQ(choice(PolicyKind::kJsq, chains), std::nullopt);
}

// Given equally loaded chains; expects SA-JSQ to take the fastest and JSQ the first. Less load goes before speed.
TEST(SaJsq, GivesTiesToTheFastest) {
  const Chains chains = {{1, 4, 2, false}, {2, 2, 1, false}, {2, 6, 3, false}, {9, 2, 2, false}};
  EXPECT_EQ(choice(PolicyKind::kSaJsq, chains), 1U);
  EXPECT_EQ(choice(PolicyKind::kJsq, chains), 0U);
}

// Given a slow free chain and a fast full one; expects the free one if T_slow is at most T_fast (n + 1) / c, otherwise the full
// one.
TEST(Sed, WeighsSpeedAgainstTheQueue) {
  Chains chains = {{0.5, 1, 0, false}, {1, 2, 3, false}};
  EXPECT_EQ(choice(PolicyKind::kSed, chains), 0U) << "2 s against 1 s x 4 / 2";
  chains[1].in_flight = 2;
  EXPECT_EQ(choice(PolicyKind::kSed, chains), 1U) << "2 s against 1 s x 3 / 2";
  chains[1].in_flight = 0;
  EXPECT_EQ(choice(PolicyKind::kSed, chains), 1U) << "2 s against 1 s";
}

// Given three chains that accept requests and one that drains; expects round robin to go through the three in order, full or
// not, and to continue from its place when one changes.
TEST(RoundRobin, GoesRound) {
  Chains chains = {{1, 1, 9, false}, {1, 1, 0, true}, {1, 1, 0, false}, {1, 1, 0, false}};
  const auto policy = make_policy(PolicyKind::kRoundRobin, Rng(1, "unused"));
  policy->reset(chains);
  for (const std::size_t expected : {0U, 2U, 3U, 0U, 2U}) EXPECT_EQ(policy->choose(), expected);
  chains[1].draining = false;
  policy->update(1, chains[1]);
  for (const std::size_t expected : {3U, 0U, 1U, 2U}) EXPECT_EQ(policy->choose(), expected);
}

// The definition of each policy, evaluated over all chains. Draws like the policy, from a stream of its own.
class Definition {
 public:
  Definition(PolicyKind kind, const Rng& rng) : kind_(kind), rng_(rng) {}

  void reset() {
    next_ = 0;
    due_.clear();
    clock_ = 0;
  }

  // Chain k is now in this state.
  void changed(std::size_t k, const ChainState& chain) {
    if (chain.draining || chain.capacity == 0) {
      due_.erase(k);
    } else if (!due_.contains(k)) {
      due_[k] = clock_ + 1 / (chain.service_rate_per_s * chain.capacity);
    }
  }

  Choice choose(const Chains& chains) {
    std::vector<std::size_t> open;
    std::vector<std::size_t> free;
    for (std::size_t k = 0; k < chains.size(); ++k) {
      if (chains[k].draining || chains[k].capacity == 0) continue;
      open.push_back(k);
      if (chains[k].in_flight < chains[k].capacity) free.push_back(k);
    }
    switch (kind_) {
      case PolicyKind::kJffc:
        return least(free, [&](std::size_t k) { return std::pair(-chains[k].service_rate_per_s, load(chains[k])); });
      case PolicyKind::kJsq: return least(open, [&](std::size_t k) { return load(chains[k]); });
      case PolicyKind::kSaJsq:
        return least(open, [&](std::size_t k) { return std::pair(load(chains[k]), -chains[k].service_rate_per_s); });
      case PolicyKind::kSed:
        return least(open, [&](std::size_t k) {
          const ChainState& c = chains[k];
          const double service_s = 1 / c.service_rate_per_s;
          return c.in_flight < c.capacity ? service_s : service_s * ((c.in_flight + 1.0) / c.capacity);
        });
      case PolicyKind::kJiq: return any(free.empty() ? open : free);
      case PolicyKind::kRandom: return any(open);
      case PolicyKind::kRoundRobin: {
        if (open.empty()) return std::nullopt;
        auto chosen = std::lower_bound(open.begin(), open.end(), next_);
        if (chosen == open.end()) chosen = open.begin();
        next_ = *chosen + 1;
        return *chosen;
      }
      case PolicyKind::kPowerOfTwo: {
        if (open.size() < 2) return any(open);
        const auto last = static_cast<std::int64_t>(open.size()) - 1;
        const std::int64_t first = rng_.integer(0, last);
        const std::int64_t drawn = rng_.integer(0, last - 1);
        const std::size_t a = open[static_cast<std::size_t>(first)];
        const std::size_t b = open[static_cast<std::size_t>(drawn + (drawn >= first ? 1 : 0))];
        return load(chains[b]) < load(chains[a]) ? b : a;
      }
      case PolicyKind::kBySize:  // with unknown latency: the emptiest chain
        return least(open, [&](std::size_t k) { return load(chains[k]); });
      case PolicyKind::kAladdin:  // without request events it fills one chain after the other
        return least(free, [](std::size_t k) { return k; });
      case PolicyKind::kSplitwise:  // without request events every queue is empty
        return least(open, [](std::size_t k) { return k; });
      case PolicyKind::kWeightedRoundRobin: return weighted(open, chains);
      case PolicyKind::kSingleInstance:
        return least(open, [&](std::size_t k) { return -chains[k].service_rate_per_s * chains[k].capacity; });
      // Without request events: requests in flight were placed one after the other, each in proportion to 1 / (rate x slots).
      case PolicyKind::kMemoryBased:
      case PolicyKind::kHuawei:
        return least(open, [&](std::size_t k) {
          const ChainState& c = chains[k];
          const double time_s = kind_ == PolicyKind::kMemoryBased ? 1 : 1 / (c.service_rate_per_s * c.capacity);
          double load = 0;
          for (int j = 0; j <= c.in_flight; ++j) load += time_s * std::exp(2.0 * j / c.capacity);
          return load;
        });
    }
    return std::nullopt;
  }

 private:
  // in_flight / capacity as a whole number: 840 is a multiple of every capacity in these tests.
  static int load(const ChainState& chain) {
    EXPECT_EQ(840 % chain.capacity, 0);
    return chain.in_flight * (840 / chain.capacity);
  }

  template <class Key>
  static Choice least(const std::vector<std::size_t>& among, Key key) {
    const auto best = std::min_element(among.begin(), among.end(), [&](auto a, auto b) { return key(a) < key(b); });
    if (best == among.end()) return std::nullopt;
    return *best;
  }

  // The chain whose next request is due first: 1 / weight after its last one, or after it started to accept requests.
  Choice weighted(const std::vector<std::size_t>& open, const Chains& chains) {
    const auto stride = [&](std::size_t k) { return 1 / (chains[k].service_rate_per_s * chains[k].capacity); };
    const auto best = least(open, [&](std::size_t k) { return due_.at(k); });
    if (!best) return best;
    clock_ = due_.at(*best);
    due_[*best] += stride(*best);
    return best;
  }

  Choice any(const std::vector<std::size_t>& among) {
    if (among.empty()) return std::nullopt;
    return among[static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(among.size()) - 1))];
  }

  PolicyKind kind_;
  Rng rng_;
  std::size_t next_ = 0;
  std::map<std::size_t, double> due_;  // of open chains
  double clock_ = 0;
};

ChainState random_state(Rng& rng) {
  return {static_cast<double>(rng.integer(1, 4)), static_cast<int>(rng.integer(0, 8)), static_cast<int>(rng.integer(0, 10)),
          rng.integer(0, 5) == 0};
}

void follow(PolicyKind kind, std::uint64_t seed, std::int64_t max_chains, int steps) {
  Rng rng(seed, "history");
  const Rng draws(seed, "draws");
  const auto policy = make_policy(kind, draws);
  Definition definition(kind, draws);
  Chains chains;
  for (int step = 0; step < steps; ++step) {
    const auto what = rng.integer(0, 19);
    if (step == 0 || what == 0) {
      chains.resize(static_cast<std::size_t>(rng.integer(step == 0 ? 1 : 0, max_chains)));
      for (ChainState& chain : chains) chain = random_state(rng);
      policy->reset(chains);
      definition.reset();
      for (std::size_t k = 0; k < chains.size(); ++k) definition.changed(k, chains[k]);
    } else if (what < 10 && !chains.empty()) {
      const auto k = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(chains.size()) - 1));
      const double rate = chains[k].service_rate_per_s;
      chains[k] = random_state(rng);
      chains[k].service_rate_per_s = rate;
      policy->update(k, chains[k]);
      definition.changed(k, chains[k]);
    } else {
      const Choice chosen = policy->choose();
      ASSERT_EQ(chosen, definition.choose(chains)) << "step " << step;
      if (!chosen) continue;
      ASSERT_FALSE(chains[*chosen].draining);
      ASSERT_GT(chains[*chosen].capacity, 0);
      ++chains[*chosen].in_flight;
      policy->update(*chosen, chains[*chosen]);
    }
  }
}

// Given random histories of resets, changes and choices on up to 9 chains, and some on up to 5,000; expects each policy to
// choose as its definition, and never a chain that drains or has no slots.
TEST(Policies, FollowTheirDefinitions) {
  for (const PolicyKind kind : kAllPolicies) {
    const std::uint64_t small_cases = effort(60U, 500U), large_cases = effort(2U, 20U);
    for (std::uint64_t seed = 1; seed <= small_cases + large_cases; ++seed) {
      SCOPED_TRACE(std::string(to_string(kind)) + ", seed " + std::to_string(seed));
      follow(kind, seed, seed <= small_cases ? 9 : 5000, 100);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Given 30,000 choices among five free chains of which one drains; expects JIQ and random to take each of the four about
// equally often.
TEST(Policies, DrawUniformly) {
  const Chains chains = {{1, 1, 0, false}, {5, 3, 0, false}, {1, 1, 0, true}, {2, 9, 8, false}, {2, 1, 0, false}};
  for (const PolicyKind kind : {PolicyKind::kJiq, PolicyKind::kRandom}) {
    const auto policy = make_policy(kind, Rng(3, "uniform"));
    policy->reset(chains);
    std::map<std::size_t, int> counts;
    for (int i = 0; i < 30'000; ++i) ++counts[policy->choose().value()];
    EXPECT_EQ(counts.size(), 4U);
    for (const auto& [chain, count] : counts) EXPECT_NEAR(count, 7500, 400) << to_string(kind) << ", chain " << chain;
  }
}

// Given every policy's name; expects the policy. Given another name; expects an error with it and the allowed names.
TEST(Policies, HaveNames) {
  for (const PolicyKind kind : kAllPolicies) EXPECT_EQ(policy_from_string(to_string(kind)).value(), kind);
  const auto wrong = policy_from_string("ws-rr");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message,
            "must be one of jffc, jsq, jiq, sed, sa-jsq, random, round-robin, power-of-two, aladdin, by-size, "
            "weighted-round-robin, single-instance, memory-based, huawei (got 'ws-rr')");
}

// Given random insertions and removals among up to 10,000 elements; expects both sets to agree with std::set.
TEST(Sets, AgreeWithTheStandards) {
  for (const std::size_t size : {1U, 2U, 63U, 64U, 65U, 4096U, 4097U, 10'000U}) {
    Rng rng(size, "sets");
    IndexSet index(size);
    RankedSet ranked(size);
    std::set<std::size_t> expected;
    const auto any = [&] { return static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(size) - 1)); };
    for (int step = 0; step < effort(500, 3000); ++step) {
      const std::size_t element = any();
      const bool present = rng.integer(0, 2) == 0;
      if (present) {
        index.insert(element);
        expected.insert(element);
      } else {
        index.erase(element);
        expected.erase(element);
      }
      ranked.set(element, present);
      ASSERT_EQ(index.first(), expected.empty() ? Choice() : Choice(*expected.begin()));
      const std::size_t from = any();
      const auto next = expected.lower_bound(from);
      ASSERT_EQ(index.first_from(from), next == expected.end() ? Choice() : Choice(*next));
      ASSERT_EQ(ranked.size(), expected.size());
      if (expected.empty()) continue;
      const auto rank = rng.integer(0, static_cast<std::int64_t>(expected.size()) - 1);
      ASSERT_EQ(ranked.at(static_cast<std::size_t>(rank)), *std::next(expected.begin(), rank));
    }
    EXPECT_EQ(index.first_from(size), std::nullopt);
  }
  EXPECT_EQ(IndexSet().first(), std::nullopt);
  EXPECT_EQ(IndexSet().first_from(0), std::nullopt);
}

}  // namespace
}  // namespace windlass::dispatch
