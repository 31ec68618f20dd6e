// Tests of composition: the choice of c against trying every c, the figures that it reports, and the error if nothing fits.
#include "planner/chain/compose.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "planner/chain/gbp_cr.h"
#include "planner/chain/gca.h"
#include "tests/effort.h"
#include "tests/unit/planner/chain/random_instance.h"

namespace windlass::chain {
namespace {

// The choice of c by Sections 3.1.3 and 3.2.3, trying every c. 0: no c gives a full chain. Values that differ only in the last
// digits are the same chains found in another order.
int best_by_trying_all(const Instance& instance, Tuning tuning, Servers servers) {
  int best = 0, largest = 0;
  double objective = 0, largest_rate = 0;
  for (int c = 1; c <= max_capacity(instance); ++c) {
    const auto composed = compose(instance, c, servers);
    if (!composed.ok()) continue;
    std::optional<double> value;
    if (tuning == Tuning::kSurrogate) {
      const DisjointChains disjoint = gbp_cr(instance, c);
      if (disjoint.reaches_rate) value = c * static_cast<double>(disjoint.chains.size());
    } else {
      value = tuning == Tuning::kLowerBound ? composed->mean_response_lower_s : composed->mean_response_upper_s;
    }
    if (value.has_value() && (best == 0 || *value < objective * (1 - 1e-12))) {
      best = c;
      objective = *value;
    }
    if (composed->total_service_rate_per_s > largest_rate * (1 + 1e-12)) {
      largest = c;
      largest_rate = composed->total_service_rate_per_s;
    }
  }
  return best > 0 ? best : largest;
}

struct Seen {
  int stable = 0, unstable = 0;
};

// Composes, and expects the c found by trying all.
void expect_best(const Instance& instance, Tuning tuning, Servers servers, Seen& seen) {
  const auto composed = compose(instance, tuning, servers);
  // The surrogate is computed on what the stop rule places.
  const int expected = best_by_trying_all(instance, tuning, tuning == Tuning::kSurrogate ? Servers::kAsNeeded : servers);
  ASSERT_EQ(composed.ok(), expected > 0);
  if (!composed.ok()) return;
  ASSERT_EQ(composed->capacity, expected) << to_string(tuning);
  ++(composed->stable ? seen.stable : seen.unstable);
}

// Whole memories, equal servers, no communication: floors at whole numbers, equal times, equal rates.
Instance instance_full_of_ties(Rng& rng) {
  Instance instance{static_cast<int>(rng.integer(1, 6)), 1, 0.5, 0, rng.uniform() < 0.5 ? 1 : 0.5, {}};
  const auto servers = rng.integer(1, 8);
  for (std::int64_t j = 0; j < servers; ++j) {
    instance.servers.push_back(Server{"s" + std::to_string(j),
                                      static_cast<double>(rng.integer(1, 6)),
                                      rng.uniform() < 0.5 ? 0.0 : 1.0,
                                      static_cast<double>(rng.integer(1, 2)),
                                      1,
                                      {}});
  }
  instance.arrival_rate_per_s = static_cast<double>(rng.integer(1, 12)) / 8;
  return instance;
}

// Given random instances with up to ten servers, of all loads, half of them full of ties; expects for each tuning, with and
// without the stop rule, the c found by trying all: the shortcuts of the search change nothing.
TEST(Compose, ChoosesTheBestCapacity) {
  Rng rng(8, "compose");
  Seen seen;
  for (int round = 0; round < effort(300, 3000); ++round) {
    const Instance instance =
        round % 2 == 0 ? random_instance(rng, {.max_servers = 10, .max_blocks = 9}) : instance_full_of_ties(rng);
    for (const Tuning tuning : {Tuning::kLowerBound, Tuning::kUpperBound, Tuning::kSurrogate}) {
      for (const Servers servers : {Servers::kAsNeeded, Servers::kAll}) {
        expect_best(instance, tuning, servers, seen);
        ASSERT_FALSE(HasFailure()) << "round " << round;
      }
    }
  }
  EXPECT_GT(seen.stable, effort(33, 500));
  EXPECT_GT(seen.unstable, effort(33, 500));
}

// As in the papers' setting, but with a memory of its own for each server, so that nearly every c is a placement of its own.
Instance instance_of_many_servers(Rng& rng) {
  Instance instance{static_cast<int>(rng.integer(8, 40)), 1.32, rng.uniform(0.3, 0.8), 0, rng.uniform(0.4, 0.9), {}};
  const auto servers = rng.integer(20, 60);
  double demand = 0;
  for (std::int64_t j = 0; j < servers; ++j) {
    const bool fast = rng.uniform() < 0.2;
    instance.servers.push_back(
        Server{"s" + std::to_string(j), rng.uniform(5, 60), rng.uniform(0.02, 0.08), fast ? 0.109 : 0.175, 1, {}});
    demand += instance.servers.back().memory_gb / 2 / instance.cache_gb / instance.servers.back().block_s;
  }
  // From almost none to more than any c can serve.
  instance.arrival_rate_per_s = rng.uniform(0.02, 2) * demand / (instance.blocks * instance.blocks);
  return instance;
}

// Given 20 to 60 servers with different memories, at all loads; expects the c found by trying all: neither the bounds of ranges
// of c nor those that end an allocation early lose the best.
TEST(Compose, ChoosesAmongManyServers) {
  Rng rng(11, "many");
  Seen seen;
  for (int round = 0; round < effort(12, 150); ++round) {
    const Instance instance = instance_of_many_servers(rng);
    for (const Tuning tuning : {Tuning::kLowerBound, Tuning::kUpperBound, Tuning::kSurrogate}) {
      const Servers servers = rng.uniform() < 0.7 ? Servers::kAsNeeded : Servers::kAll;
      expect_best(instance, tuning, servers, seen);
      ASSERT_FALSE(HasFailure()) << "round " << round;
    }
  }
  EXPECT_GT(seen.stable, effort(5, 60));
  EXPECT_GT(seen.unstable, effort(2, 20));
}

// Given an arrival rate equal to the total rate, up to the last bits; expects stability exactly if both bounds exist.
TEST(Compose, IsStableWithBothBoundsOrNot) {
  Rng rng(10, "edge");
  for (int round = 0; round < effort(200, 2000); ++round) {
    Instance instance = random_instance(rng, {.max_servers = 6, .max_blocks = 6});
    const auto before = compose(instance, 1);
    if (!before.ok()) continue;
    instance.arrival_rate_per_s = before->total_service_rate_per_s * (1 + static_cast<double>(rng.integer(-3, 3)) * 1e-16);
    const Composition composed = compose_on(instance, before->placement);
    ASSERT_EQ(composed.stable, composed.mean_response_lower_s.has_value());
    ASSERT_EQ(composed.stable, composed.mean_response_upper_s.has_value());
  }
}

// Given random instances; expects totals, flags and bounds to agree with the chains, and Lemma 3.2: GCA serves at least as much
// as the disjoint chains.
TEST(Compose, ReportsWhatItComposed) {
  Rng rng(9, "compose-says");
  int composed_count = 0;
  for (int round = 0; round < effort(200, 2000); ++round) {
    const Instance instance = random_instance(rng, {.max_servers = 10, .max_blocks = 9});
    const int capacity = static_cast<int>(rng.integer(1, 5));
    const auto composed = compose(instance, capacity);
    if (!composed.ok()) continue;
    ++composed_count;
    long total = 0;
    double rate = 0;
    for (const ServerChain& chain : composed->chains) {
      total += chain.capacity;
      rate += chain.capacity / chain.service_time_s;
    }
    ASSERT_EQ(composed->total_capacity, total);
    ASSERT_NEAR(composed->total_service_rate_per_s, rate, 1e-12 * rate);
    ASSERT_EQ(composed->stable, instance.arrival_rate_per_s < composed->total_service_rate_per_s);
    ASSERT_EQ(composed->stable, composed->mean_response_lower_s.has_value());
    ASSERT_EQ(composed->stable, composed->mean_response_upper_s.has_value());
    if (composed->stable) {
      ASSERT_LE(*composed->mean_response_lower_s, *composed->mean_response_upper_s * (1 + 1e-12));
    }
    ASSERT_GE(rate * (1 + 1e-12), capacity * gbp_cr(instance, capacity).scaled_rate_per_s);
  }
  EXPECT_GT(composed_count, effort(33, 500));
}

// Given servers that together hold 3 of 5 blocks of 2.5 GB with their caches, one with 0.5 GB left over; expects an error that
// says how many GB are missing at least: 2 and 2.5.
TEST(Compose, SaysHowMuchMemoryIsMissing) {
  const Instance instance{5, 2, 0.5, 1, 0.7, {Server{"a", 5, 0.1, 0.1, 1, {}}, Server{"b", 3, 0.1, 0.1, 1, {}}}};
  for (const auto& refused : {compose(instance, 1), compose(instance, Tuning::kLowerBound)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
    EXPECT_NE(refused.error().message.find("3 of 5 blocks"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("at least 4.5 GB of memory are missing"), std::string::npos)
        << refused.error().message;
  }
}

// Given the setting of Section 4.1.1 without delays, c = 7; expects 19 blocks on a 40 GB server and 9 on a 20 GB server (Eq.
// 8).
TEST(Compose, PlacesThePapersBlockCounts) {
  Instance instance{70, 1.32, 0.11, 0.2, 0.7, {}};
  for (int j = 0; j < 20; ++j) {
    instance.servers.push_back(Server{"s" + std::to_string(j), j < 4 ? 40.0 : 20.0, 0.02, j < 4 ? 0.109 : 0.175, 1, {}});
  }
  const auto composed = compose(instance, 7);
  ASSERT_TRUE(composed.ok());
  EXPECT_EQ(composed->placement[0].blocks, 19);
  EXPECT_EQ(composed->disjoint_chains[0], (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(composed->meets_max_load);
}

}  // namespace
}  // namespace windlass::chain
