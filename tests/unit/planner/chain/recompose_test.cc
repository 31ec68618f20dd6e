// Tests of recomposition as a whole: what is proposed and why, survivors, worth in request-seconds, and the steps of thousands
// of random changes executed block by block.
#include "planner/chain/recompose.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/chain/failure.h"
#include "planner/chain/fewest_loads.h"
#include "planner/chain/transition_worth.h"
#include "tests/effort.h"
#include "tests/unit/planner/chain/mip_random_instances.h"
#include "tests/unit/planner/chain/recompose_execution.h"

namespace windlass::chain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Three servers that each hold two of four blocks: any two with different halves make a chain.
Instance three_servers() {
  Instance instance;
  instance.blocks = 4;
  instance.block_gb = 1;
  instance.cache_gb = 0.1;
  instance.arrival_rate_per_s = 0.1;
  for (const char* name : {"a", "b", "c"}) instance.servers.push_back(Server{name, 2.45, 1, 0.5, 0.5, std::nullopt});
  return instance;
}

Composition on(const Instance& instance, Placement placement) { return compose_on(instance, std::move(placement)); }

// The instance with some servers removed, some new, and another demand.
Instance changed(Rng& rng, const Instance& old) {
  Instance instance = old;
  instance.arrival_rate_per_s *= std::exp(rng.uniform(-1.5, 1.5));
  std::erase_if(instance.servers, [&](const Server&) { return rng.uniform() < 0.15; });
  const auto joining = rng.integer(0, 2);
  for (int j = 0; j < joining; ++j) {
    instance.servers.push_back(random_server(rng, 100 + j, {.max_servers = 1, .max_blocks = 6, .max_memory_gb = 6}));
  }
  if (rng.uniform() < 0.2) std::reverse(instance.servers.begin(), instance.servers.end());
  return instance;
}

// Given a and b with the first half and c with the second; expects the chain b, c after a's failure, and none after c's.
TEST(Surviving, ServesWhatIsLeftAtOnce) {
  const Instance instance = three_servers();
  const Placement placement = {{1, 2}, {1, 2}, {3, 2}};
  const Composition without_a = surviving(instance, placement, {0});
  ASSERT_EQ(without_a.chains.size(), 1u);
  EXPECT_THAT(without_a.chains[0].servers, ElementsAre(1, 2));
  EXPECT_EQ(without_a.chains[0].capacity, 2);
  EXPECT_EQ(without_a.placement, (Placement{{1, 0}, {1, 2}, {3, 2}}));
  const Composition without_c = surviving(instance, placement, {2});
  EXPECT_THAT(without_c.chains, IsEmpty());
  EXPECT_FALSE(without_c.stable);
}

// Given random failures; expects the survivors to serve what GCA finds on the instance without the failed servers.
TEST(Surviving, IsTheInstanceWithoutTheFailed) {
  for (std::uint64_t seed = 0; seed < effort(100U, 1000U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "failure");
    const Instance instance = random_instance(rng, {.max_servers = 6, .max_blocks = 4, .max_memory_gb = 5});
    const Placement placement = random_placement(rng, instance);
    std::vector<int> failed;
    Instance left = instance;
    left.servers.clear();
    Placement left_placement;
    for (std::size_t j = 0; j < placement.size(); ++j) {
      if (rng.uniform() < 0.3) {
        failed.push_back(static_cast<int>(j));
      } else {
        left.servers.push_back(instance.servers[j]);
        left_placement.push_back(placement[j]);
      }
    }
    const Composition survivors = surviving(instance, placement, failed);
    const Composition expected = compose_on(left, left_placement);
    ASSERT_EQ(survivors.total_capacity, expected.total_capacity);
    ASSERT_EQ(survivors.total_service_rate_per_s, expected.total_service_rate_per_s);
    ASSERT_EQ(survivors.mean_response_lower_s, expected.mean_response_lower_s);
  }
}

// Given servers in another order; expects them to be matched by name. Given one whose memory shrank below its range; expects it
// to hold nothing.
TEST(CarriedOver, MatchesServersByName) {
  const Instance old = three_servers();
  Instance next = old;
  next.servers = {old.servers[2], Server{"new", 9, 1, 1, 1, std::nullopt}, old.servers[0]};
  next.servers[2].memory_gb = 1.9;
  EXPECT_EQ(carried_over(old, {{1, 2}, {1, 2}, {3, 2}}, next), (Placement{{3, 2}, {1, 0}, {1, 0}}));
}

// Given services that are stable with nothing waiting, drain in time or not, grow, or have no chain; expects the fluid course.
TEST(TransitionWorth, FollowsTheFluidCourse) {
  const Service stable{1, 3, 10, 1.5};
  EXPECT_EQ(course(stable, 0, 10).request_s, 15);
  EXPECT_EQ(course(stable, 8, 10).request_s, 15 + 8 * 8 / (2 * 2.0));
  EXPECT_EQ(course(stable, 8, 10).waiting, 0);
  EXPECT_EQ(course(stable, 8, 2).request_s, 3 + 8 * 2 - 2 * 2 * 2 / 2.0);
  EXPECT_EQ(course(stable, 8, 2).waiting, 4);
  const Service unstable{3, 1, 2, 2};
  EXPECT_EQ(course(unstable, 5, 4).request_s, 2 * 4 + 5 * 4 + 2 * 4 * 4 / 2.0);
  EXPECT_EQ(course(unstable, 5, 4).waiting, 13);
  const Service none = service_of({}, 3);
  EXPECT_EQ(course(none, 0, 4).request_s, 3 * 4 * 4 / 2.0);
  EXPECT_EQ(course(none, 0, 0).request_s, 0);
}

// Given a course in two parts; expects the course in one.
TEST(TransitionWorth, AddsUpOverTime) {
  Rng rng(5, "course");
  for (int i = 0; i < effort(100, 1000); ++i) {
    const Service service{rng.uniform(0, 2), rng.uniform(0, 2), rng.uniform(1, 9), rng.uniform(0, 9)};
    const double waiting = rng.uniform(0, 20), one_s = rng.uniform(0, 30), two_s = rng.uniform(0, 30);
    const Course first = course(service, waiting, one_s);
    const Course second = course(service, first.waiting, two_s);
    const Course both = course(service, waiting, one_s + two_s);
    ASSERT_NEAR(first.request_s + second.request_s, both.request_s, 1e-9 * (1 + both.request_s));
    ASSERT_NEAR(second.waiting, both.waiting, 1e-9 * (1 + both.waiting));
  }
}

// Given one server with the whole model that joins two that share it, both stable and nothing lost; expects the gain H lambda
// (R_old - R_new) and no cost, because the old chain continues while it loads.
TEST(Recompose, AddsAServerThatJoins) {
  Instance old = three_servers();
  old.servers.pop_back();
  const Composition before = on(old, {{1, 2}, {3, 2}});
  Instance next = old;
  next.servers.push_back(Server{"whole", 8, 0.25, 0.25, 2, std::nullopt});
  const auto transition = recompose(old, before, next);
  ASSERT_TRUE(transition.ok()) << transition.error().message;
  EXPECT_TRUE(transition->proposed);
  EXPECT_FALSE(transition->interrupted);
  ASSERT_GE(transition->waves.size(), 1u);
  const auto& loading = transition->waves.front().steps;
  ASSERT_EQ(loading.back(), (TransitionStep{2, {}, {{1, 4}}, 2}));
  EXPECT_EQ(transition->loaded_gb, 4);
  const double expected = 3600 * 0.1 * (*before.mean_response_lower_s - *transition->next.mean_response_lower_s);
  EXPECT_NEAR(transition->gain_request_s, expected, 1e-9 * expected);
  EXPECT_NEAR(transition->cost_request_s, 0, 1e-9);
  EXPECT_THAT(transition->reason, HasSubstr("it gains"));
}

// Given a chain that lost a server, and an empty server of the same kind; expects that it takes over the lost range and nobody
// else moves; proposed because nothing is served otherwise, and interrupted until two blocks are loaded at half a GB per
// second.
TEST(Recompose, ReplacesALostServer) {
  Instance old = three_servers();
  const Composition before = on(old, {{1, 2}, {3, 2}, {1, 0}});
  Instance next = old;
  next.servers.erase(next.servers.begin());
  const auto transition = recompose(old, before, next);
  ASSERT_TRUE(transition.ok()) << transition.error().message;
  EXPECT_THAT(transition->gone, ElementsAre("a"));
  EXPECT_THAT(transition->current.chains, IsEmpty());
  EXPECT_TRUE(transition->proposed);
  EXPECT_EQ(transition->reason, "the remaining servers hold no full chain");
  ASSERT_EQ(transition->waves.size(), 1u);
  EXPECT_THAT(transition->waves[0].steps, ElementsAre(TransitionStep{1, {}, {{1, 2}}, 4}));
  EXPECT_TRUE(transition->interrupted);
  EXPECT_EQ(transition->interrupted_s, 4);
  EXPECT_EQ(transition->waves[0].total_service_rate_per_s, 0);
}

// Given an old placement that cannot keep up; expects the gain to be the backlog that would grow, (lambda - nu) t^2 / 2 from
// the start of the horizon. While it grows, expects two servers to load together and not one after the other; the backlog then
// drains under the new chains, which is the only cost beyond what happens anyway.
TEST(Recompose, CountsTheBacklogOfTooFewChains) {
  Instance old = three_servers();
  old.servers.push_back(Server{"d", 2.45, 1, 0.5, 0.5, std::nullopt});
  old.arrival_rate_per_s = 0.05;
  const Composition before = on(old, {{1, 2}, {3, 2}, {1, 0}, {1, 0}});
  Instance next = old;
  next.arrival_rate_per_s = 0.6;
  const auto transition = recompose(old, before, next, {.horizon_s = 1000});
  ASSERT_TRUE(transition.ok()) << transition.error().message;
  ASSERT_FALSE(transition->current.stable);
  ASSERT_TRUE(transition->next.stable);
  EXPECT_TRUE(transition->proposed);
  EXPECT_EQ(transition->waves.size(), 1u);
  EXPECT_EQ(transition->seconds, 4);
  const double growth = 0.6 - transition->current.total_service_rate_per_s;
  const double new_present = 0.6 * *transition->next.mean_response_lower_s;
  const double old_present = std::max(new_present, static_cast<double>(transition->current.total_capacity));
  const double gain = 1000 * (old_present - new_present) + growth * (1004 * 1004 - 4 * 4) / 2;
  EXPECT_NEAR(transition->gain_request_s, gain, 1e-9 * gain);
  const double waiting = growth * 4;
  const double drain_per_s = transition->next.total_service_rate_per_s - 0.6;
  EXPECT_NEAR(transition->cost_request_s, waiting * waiting / (2 * drain_per_s), 1e-9);
}

// Given a swap that leaves no chain for 2 s; expects arrivals to wait, lambda t^2 / 2, and then to drain, compared with the
// mean number in the old chain's system.
TEST(TransitionWorth, ChargesAnInterruption) {
  Instance instance;
  instance.blocks = 2;
  instance.block_gb = 1;
  instance.cache_gb = 0.1;
  instance.arrival_rate_per_s = 0.5;
  for (const char* name : {"a", "b"}) instance.servers.push_back(Server{name, 1.55, 0.5, 0.25, 0.5, std::nullopt});
  const Composition current = on(instance, {{1, 1}, {2, 1}});
  const Composition next = on(instance, {{2, 1}, {1, 1}});
  auto orders = transition_orders(instance, current.placement, next.placement);
  ASSERT_EQ(orders.back().waves.size(), 1u);
  const TransitionWorth worth = worth_of(instance, current, next, orders.back().waves, 100);
  EXPECT_EQ(worth.seconds, 2);
  EXPECT_EQ(orders.back().waves[0].total_service_rate_per_s, 0);
  EXPECT_NEAR(worth.gain_request_s, 0, 1e-9);
  const double waiting = 0.5 * 2;
  const double drain_per_s = next.total_service_rate_per_s - 0.5;
  EXPECT_NEAR(worth.cost_request_s, waiting * 2 / 2 + waiting * waiting / (2 * drain_per_s), 1e-9);
}

// Given unchanged demand and servers; expects no changes, no steps, no proposal, and the same chains.
TEST(Recompose, ProposesNothingIfNothingChanged) {
  int composed_count = 0;
  for (std::uint64_t seed = 0; seed < effort(100U, 1000U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "unchanged");
    const Instance instance = random_instance(rng, {.max_servers = 8, .max_blocks = 6, .max_memory_gb = 6});
    const auto composed = compose(instance, Tuning::kLowerBound);
    if (!composed.ok()) continue;
    ++composed_count;
    const auto transition = recompose(instance, *composed, instance);
    ASSERT_TRUE(transition.ok()) << transition.error().message;
    ASSERT_FALSE(transition->proposed);
    ASSERT_THAT(transition->changes, IsEmpty());
    ASSERT_THAT(transition->waves, IsEmpty());
    ASSERT_EQ(transition->next.placement, composed->placement);
    ASSERT_EQ(transition->next.chains, composed->chains);
    ASSERT_EQ(transition->reason, "the servers already hold what the new chains need");
  }
  EXPECT_GT(composed_count, effort(26, 400));
}

// Given the same change with a horizon of a millisecond and a very long one; expects a change with gain and cost to be proposed
// only for the long one, and a change from no service to be proposed for both.
TEST(Recompose, ProposesWhatPaysWithinTheHorizon) {
  int flipped = 0, never = 0, forced = 0;
  for (std::uint64_t seed = 0; seed < effort(150U, 1500U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "horizon");
    const Instance old = random_instance(rng, {.max_servers = 8, .max_blocks = 6, .max_memory_gb = 6});
    const auto composed = compose(old, Tuning::kLowerBound);
    if (!composed.ok()) continue;
    const Instance next = changed(rng, old);
    if (next.servers.empty()) continue;
    const auto soon = recompose(old, *composed, next, {.horizon_s = 1e-3});
    const auto late = recompose(old, *composed, next, {.horizon_s = 1e9});
    ASSERT_EQ(soon.ok(), late.ok());
    if (!soon.ok()) {
      ASSERT_EQ(soon.error().code, ErrorCode::kFailedPrecondition);
      ASSERT_THAT(soon.error().message, HasSubstr("GB"));
      continue;
    }
    for (const auto* transition : {&*soon, &*late}) {
      const bool serves = !transition->current.chains.empty();
      const bool moves = !transition->changes.empty();
      ASSERT_EQ(transition->proposed, moves && (!serves || transition->gain_request_s > transition->cost_request_s));
    }
    forced += soon->current.chains.empty();
    flipped += !soon->proposed && late->proposed;
    never += !late->proposed && !late->changes.empty();
  }
  EXPECT_GT(flipped, effort(3, 50));
  EXPECT_GT(never, effort(1, 5));
  EXPECT_GT(forced, effort(3, 50));
}

// Given random changes of demand and servers; expects the steps to be executable and to lead to the new composition; service to
// be kept whenever some order keeps it (searched if at most 7 servers change); and totals and flags to agree with the waves.
TEST(Recompose, StepsSurviveExecution) {
  int executed = 0, smooth = 0, interrupted = 0, searched = 0;
  for (std::uint64_t seed = 0; seed < effort(400U, 4000U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "execution");
    const Instance old = random_instance(rng, {.max_servers = 8, .max_blocks = 6, .max_memory_gb = 4});
    const Composition composed = on(old, random_placement(rng, old));
    const Instance next = changed(rng, old);
    if (next.servers.empty()) continue;
    const auto transition = recompose(old, composed, next);
    if (!transition.ok()) continue;
    const Placement& before = transition->current.placement;
    const Placement& after = transition->next.placement;
    ASSERT_EQ(transition->changes, changes_between(next, before, after));
    if (transition->changes.empty()) continue;
    ++executed;
    const Execution execution = execute(next, before, after, transition->waves);
    ASSERT_EQ(execution.mistake, "");
    ASSERT_NEAR(execution.interrupted_s, transition->interrupted_s, 1e-9);
    ASSERT_NEAR(execution.seconds, transition->seconds, 1e-9);
    ASSERT_EQ(transition->interrupted, transition->interrupted_s > 0);
    ASSERT_DOUBLE_EQ(transition->loaded_gb, static_cast<double>(blocks_to_load(before, after)) * next.block_gb);
    ASSERT_TRUE(std::isfinite(transition->gain_request_s) && std::isfinite(transition->cost_request_s));
    ASSERT_EQ(compose_on(next, after).chains, transition->next.chains);
    if (transition->changes.size() <= 7) {
      ++searched;
      ASSERT_EQ(!transition->interrupted, some_order_serves(next, before, after));
    }
    (transition->interrupted ? interrupted : smooth) += 1;
  }
  EXPECT_GT(executed, effort(66, 1000));
  EXPECT_GT(searched, effort(53, 800));
  EXPECT_GT(smooth, effort(13, 200));
  EXPECT_GT(interrupted, effort(13, 200));
}

// Given every transition to the best c and to the old one; expects that none to the chosen composition loses less service, or
// the same with less accumulated by the same time; and that the other composition's best transition has accumulated no less.
TEST(Recompose, ChoosesTheBestTransition) {
  int several_orders = 0, several_targets = 0, old_capacity = 0;
  for (std::uint64_t seed = 0; seed < effort(150U, 1500U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "ways");
    const Instance old = random_instance(rng, {.max_servers = 10, .max_blocks = 6, .max_memory_gb = 8});
    const auto composed = compose(old, Tuning::kLowerBound);
    if (!composed.ok()) continue;
    const Instance next = changed(rng, old);
    if (next.servers.empty()) continue;
    const auto chosen = recompose(old, *composed, next);
    if (!chosen.ok()) continue;
    struct Way {
      bool to_chosen;
      double interrupted_s;
      TransitionWorth worth;
    };
    std::vector<std::vector<Way>> ways;  // by target
    std::vector<int> capacities{compose(next, Tuning::kLowerBound)->capacity, composed->capacity};
    if (capacities[0] == capacities[1]) capacities.pop_back();
    double longest_s = 0;
    for (const int capacity : capacities) {
      const auto fresh = compose(next, capacity);
      if (!fresh.ok()) continue;
      const Composition target = with_fewest_loads(next, *fresh, chosen->current.placement);
      auto orders = transition_orders(next, chosen->current.placement, target.placement);
      if (orders.empty()) orders.emplace_back();
      several_orders += orders.size() > 1;
      ways.emplace_back();
      for (TransitionOrder& order : orders) {
        const auto worth = worth_of(next, chosen->current, target, order.waves, 3600);
        ways.back().push_back({target.placement == chosen->next.placement, order.interrupted_s, worth});
        longest_s = std::max(longest_s, worth.seconds);
      }
    }
    const double span_s = 3600 + longest_s;
    std::vector<double> best_s;  // by target
    double chosen_s = std::numeric_limits<double>::infinity();
    for (const auto& to_target : ways) {
      std::pair best{std::numeric_limits<double>::infinity(), 0.0};
      for (const Way& way : to_target) best = std::min(best, std::pair(way.interrupted_s, way.worth.accumulated(span_s)));
      best_s.push_back(best.second);
      if (!to_target.front().to_chosen) continue;
      ASSERT_EQ(chosen->interrupted_s, best.first);
      for (const Way& way : to_target) {
        const bool is_it = way.interrupted_s == chosen->interrupted_s && way.worth.seconds == chosen->seconds &&
                           (chosen->changes.empty() || way.worth.cost_request_s == chosen->cost_request_s);
        if (is_it) chosen_s = std::min(chosen_s, way.worth.accumulated(span_s));
      }
      ASSERT_EQ(chosen_s, best.second);
    }
    ASSERT_EQ(chosen_s, *std::min_element(best_s.begin(), best_s.end()));
    several_targets += ways.size() > 1;
    old_capacity += ways.size() > 1 && !chosen->changes.empty() && !ways[0].front().to_chosen;
  }
  EXPECT_GT(several_orders, effort(20, 300));
  EXPECT_GT(several_targets, effort(6, 100));
  EXPECT_GT(old_capacity, effort(0, 5));
}

// Given the same call twice; expects the same answer.
TEST(Recompose, RepeatsItself) {
  Rng rng(8, "repeat");
  for (int i = 0; i < 200; ++i) {
    const Instance old = random_instance(rng, {.max_servers = 8, .max_blocks = 6, .max_memory_gb = 4});
    const Composition composed = on(old, random_placement(rng, old));
    const Instance next = changed(rng, old);
    const auto one = recompose(old, composed, next);
    const auto two = recompose(old, composed, next);
    ASSERT_EQ(one.ok(), two.ok());
    if (!one.ok()) continue;
    ASSERT_EQ(one->waves, two->waves);
    ASSERT_EQ(one->next.placement, two->next.placement);
    ASSERT_EQ(one->cost_request_s, two->cost_request_s);
  }
}

// Given the loss of one of 20 servers of Section 4.1.1's sizes; expects most others to keep their blocks, and no interruption
// unless the lost one held the only copy of a block.
TEST(Recompose, MovesLittleWhenOneOfManyIsLost) {
  Instance instance;
  instance.blocks = 70;
  instance.block_gb = 1.32;
  instance.cache_gb = 0.11;
  instance.arrival_rate_per_s = 0.5;
  Rng rng(2, "servers");
  for (int j = 0; j < 20; ++j) {
    const bool large = j % 5 == 0;
    instance.servers.push_back(
        Server{fmt::format("s{}", j), large ? 40.0 : 20.0, rng.uniform(0.02, 0.2), large ? 0.109 : 0.175, 1, std::nullopt});
  }
  const auto composed = compose(instance, Tuning::kLowerBound);
  ASSERT_TRUE(composed.ok());
  double loaded_gb = 0, anew_gb = 0;
  for (std::size_t lost = 0; lost < instance.servers.size(); ++lost) {
    SCOPED_TRACE(lost);
    Instance next = instance;
    next.servers.erase(next.servers.begin() + static_cast<std::ptrdiff_t>(lost));
    const auto transition = recompose(instance, *composed, next);
    ASSERT_TRUE(transition.ok()) << transition.error().message;
    const Execution execution = execute(next, transition->current.placement, transition->next.placement, transition->waves);
    ASSERT_EQ(execution.mistake, "");
    loaded_gb += transition->loaded_gb;
    for (const BlockRange& range : transition->next.placement) anew_gb += range.blocks * next.block_gb;
  }
  EXPECT_LT(loaded_gb, 0.3 * anew_gb);
}

// Given another model, ranges outside of it, an invalid horizon, no bandwidth or a duplicate name; expects an error that names
// it.
TEST(Recompose, RejectsBadInput) {
  const Instance old = three_servers();
  const Composition composed = on(old, {{1, 2}, {3, 2}, {1, 0}});
  const auto message = [&](auto change) {
    Instance next = old;
    Composition from = composed;
    RecomposeOptions options;
    change(next, from, options);
    const auto transition = recompose(old, from, next, options);
    EXPECT_FALSE(transition.ok());
    if (transition.ok()) return std::string();
    EXPECT_EQ(transition.error().code, ErrorCode::kInvalidArgument);
    return transition.error().message;
  };
  EXPECT_THAT(message([](auto& next, auto&, auto&) { next.blocks = 5; }),
              HasSubstr("model.blocks: must be 4 as before (got 5)"));
  EXPECT_THAT(message([](auto& next, auto&, auto&) { next.block_gb = 2; }),
              HasSubstr("model.blockSizeGB: must be 1 as before (got 2)"));
  EXPECT_THAT(message([](auto& next, auto&, auto&) { next.arrival_rate_per_s = 0; }),
              HasSubstr("arrivalRate: must be a number above 0 (got 0)"));
  EXPECT_THAT(message([](auto& next, auto&, auto&) { next.servers[1].name = "a"; }),
              HasSubstr("servers: names must be unique (got 'a' twice)"));
  EXPECT_THAT(message([](auto& next, auto&, auto&) { next.servers[1].load_gb_per_s = 0; }),
              HasSubstr("server b: loadGBPerSecond"));
  EXPECT_THAT(message([](auto&, auto& from, auto&) {
                from.placement[1] = {4, 2};
              }),
              HasSubstr("server b: must be within blocks 1 to 4 (got 4 to 5)"));
  EXPECT_THAT(message([](auto&, auto& from, auto&) { from.placement.pop_back(); }),
              HasSubstr("must be 3 ranges, one per server (got 2)"));
  EXPECT_THAT(message([](auto&, auto&, auto& options) { options.horizon_s = 0; }),
              HasSubstr("horizon_s: must be a number above 0 (got 0)"));
}

// Given too few servers left for any chain; expects compose()'s error, with the missing GB.
TEST(Recompose, SaysWhatIsMissing) {
  const Instance old = three_servers();
  Instance next = old;
  next.servers.resize(1);
  const auto transition = recompose(old, on(old, {{1, 2}, {3, 2}, {1, 0}}), next);
  ASSERT_FALSE(transition.ok());
  EXPECT_EQ(transition.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(transition.error().message, HasSubstr("GB of memory are missing"));
}

}  // namespace
}  // namespace windlass::chain
