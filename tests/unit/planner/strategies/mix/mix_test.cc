// Tests the cheapest mix against brute force: the integer program, the heuristic and its bound, budgets, priorities, and
// messages about missing resources.
#include "planner/strategies/mix/mix.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/strategies/mix/mix_program.h"
#include "tests/bench/heterogeneous/mix_instances.h"
#include "tests/effort.h"

namespace windlass::search {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNear = 1e-6;

// The objectives in order: unserved requests of each priority class, then the cost.
using Worth = std::vector<double>;
bool better(const Worth& a, const Worth& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] < b[i] - 1e-5) return true;
    if (a[i] > b[i] + 1e-5) return false;
  }
  return false;
}

Worth worth_of(const MixColumns& columns, const std::vector<double>& unserved, double cost) {
  Worth worth(static_cast<std::size_t>(columns.classes), 0.0);
  for (std::size_t m = 0; m < unserved.size(); ++m) worth[static_cast<std::size_t>(columns.ranks[m])] += unserved[m];
  worth.push_back(cost);
  return worth;
}
Worth worth_of(const MixColumns& columns, const Mix& mix) {
  std::vector<double> unserved;
  for (const MixShares& model : mix.models) unserved.push_back(model.unserved_per_s);
  return worth_of(columns, unserved, mix.cost_per_hour);
}

// The best of all counts within the budgets.
Worth brute_force(const MixProblem& problem) {
  const MixColumns columns(problem);
  std::vector<int> counts(columns.columns.size(), 0), most;
  for (const auto& column : columns.columns) {
    double work = 0;
    for (const MixBucket& bucket : problem.models[static_cast<std::size_t>(column.model)].buckets) {
      const double load = bucket.load_s[static_cast<std::size_t>(column.kind)];
      if (std::isfinite(load)) work += bucket.requests_per_s * load;
    }
    most.push_back(static_cast<int>(std::ceil(work)));
  }
  Worth best;
  bool any_short = true;
  const std::function<void(std::size_t)> walk = [&](std::size_t at) {
    if (!columns.inside_budgets(counts)) return;
    if (at < counts.size()) {
      for (int n = 0; n <= most[at]; ++n) {
        counts[at] = n;
        walk(at + 1);
      }
      counts[at] = 0;
      return;
    }
    if (!best.empty() && !any_short && columns.cost(counts) >= best.back()) return;
    std::vector<double> unserved;
    for (std::size_t m = 0; m < problem.models.size(); ++m) {
      const std::vector<int> own(counts.begin() + static_cast<std::ptrdiff_t>(columns.first[m]),
                                 counts.begin() + static_cast<std::ptrdiff_t>(columns.first[m + 1]));
      unserved.push_back(shares_of(problem.models[m], own)->unserved_per_s);
    }
    const Worth worth = worth_of(columns, unserved, columns.cost(counts));
    if (!best.empty() && !better(worth, best)) return;
    best = worth;
    double left = 0;
    for (std::size_t m = 0; m < unserved.size(); ++m) left += unserved[m] - columns.hopeless_per_s[m];
    any_short = left > 1e-6;
  };
  walk(0);
  return best;
}

// Expects shares that add up and go only where a bucket may go, and no worker over its time.
void expect_sound(const MixProblem& problem, const Mix& mix) {
  const MixColumns columns(problem);
  std::vector<int> counts;
  for (std::size_t m = 0; m < problem.models.size(); ++m) {
    const MixModel& model = problem.models[m];
    const MixShares& shares = mix.models[m];
    counts.insert(counts.end(), shares.workers.begin(), shares.workers.end());
    std::vector<double> work(model.kinds.size(), 0.0);
    double unserved = 0;
    for (std::size_t b = 0; b < model.buckets.size(); ++b) {
      double sum = 0;
      for (std::size_t k = 0; k < model.kinds.size(); ++k) {
        const double share = shares.shares[b][k];
        EXPECT_GE(share, -kNear);
        if (share <= kNear) continue;
        ASSERT_TRUE(std::isfinite(model.buckets[b].load_s[k]));
        work[k] += share * model.buckets[b].requests_per_s * model.buckets[b].load_s[k];
        sum += share;
      }
      EXPECT_LE(sum, 1 + kNear);
      unserved += model.buckets[b].requests_per_s * (1 - sum);
    }
    EXPECT_NEAR(unserved, shares.unserved_per_s, 1e-4 * (1 + columns.all_per_s));
    for (std::size_t k = 0; k < model.kinds.size(); ++k) EXPECT_LE(work[k], shares.workers[k] + kNear);
  }
  EXPECT_TRUE(columns.inside_budgets(counts));
  EXPECT_NEAR(columns.cost(counts), mix.cost_per_hour, 1e-9);
  EXPECT_LE(mix.bound_per_hour, mix.cost_per_hour + 1e-9);
  EXPECT_LE(mix.unserved_bound_per_s, mix.unserved_per_s + 1e-9);
}

// Given small instances without budgets; expects the integer program to cost the same as brute force, and the heuristic at most
// 1 % more, with a valid lower bound.
TEST(Mix, CostsWhatBruteForceDoes) {
  int mixed = 0, proven = 0;
  for (std::uint64_t seed = 0; seed < effort(25U, 150U); ++seed) {
    MixInstanceSpec spec;
    spec.kinds = 2 + static_cast<int>(seed % 2);
    spec.buckets = 1 + static_cast<int>(seed % 5);
    spec.workers = 1.5 + static_cast<double>(seed % 3);
    const MixProblem problem = random_mix(spec, seed);
    const Worth best = brute_force(problem);
    const auto exact = exact_mix(problem);
    const auto near = heuristic_mix(problem);
    ASSERT_TRUE(exact.ok() && near.ok()) << seed;
    expect_sound(problem, *exact);
    expect_sound(problem, *near);
    EXPECT_NEAR(exact->cost_per_hour, best.back(), 1e-5) << seed;
    EXPECT_TRUE(exact->optimal) << seed;
    EXPECT_GE(near->cost_per_hour, best.back() - 1e-5) << seed;
    EXPECT_LE(near->cost_per_hour, 1.01 * best.back() + 1e-5) << seed;
    EXPECT_LE(near->bound_per_hour, best.back() + 1e-5) << seed;
    const auto& workers = exact->models.front().workers;
    mixed += std::count_if(workers.begin(), workers.end(), [](int n) { return n > 0; }) > 1 ? 1 : 0;
    proven += near->optimal ? 1 : 0;
  }
  EXPECT_GE(mixed, effort(3, 30));     // instances that need several kinds
  EXPECT_GE(proven, effort(10, 100));  // the heuristic's bound is useful
}

// Given several models with budgets that may be too small; expects the same as brute force: the fewest unserved by priority,
// then cost.
TEST(Mix, SharesBudgetsByPriority) {
  int short_of = 0;
  for (std::uint64_t seed = 0; seed < effort(16U, 80U); ++seed) {
    MixInstanceSpec spec;
    spec.models = 2;
    spec.accelerators = 2;
    spec.kinds = 2;
    spec.buckets = 2;
    spec.workers = 2;
    spec.budgets = true;
    const MixProblem problem = random_mix(spec, 1000 + seed);
    const MixColumns columns(problem);
    const Worth best = brute_force(problem);
    const auto exact = exact_mix(problem);
    const auto near = heuristic_mix(problem);
    ASSERT_TRUE(exact.ok() && near.ok()) << seed;
    expect_sound(problem, *exact);
    expect_sound(problem, *near);
    const Worth found = worth_of(columns, *exact), guessed = worth_of(columns, *near);
    for (std::size_t i = 0; i + 1 < best.size(); ++i) EXPECT_NEAR(found[i], best[i], 1e-4) << seed;
    EXPECT_NEAR(found.back(), best.back(), 1e-4) << seed;
    EXPECT_FALSE(better(guessed, best)) << seed;
    double unserved = 0, least = 0;
    for (std::size_t i = 0; i + 1 < best.size(); ++i) {
      unserved += guessed[i];
      least += best[i];
    }
    EXPECT_LE(unserved, least + 0.05 * columns.all_per_s) << seed;
    EXPECT_LE(exact->unserved_bound_per_s, least + 1e-4) << seed;
    double hopeless = 0;
    for (const double per_s : columns.hopeless_per_s) hopeless += per_s;
    short_of += least > hopeless + 1e-4 ? 1 : 0;
    EXPECT_EQ(exact->missing.empty(), least < 1e-6) << seed;
  }
  EXPECT_GE(short_of, effort(3, 20));
  EXPECT_LE(short_of, effort(15, 70));
}

// Given larger instances; expects the heuristic within 1 % of the integer program and its bound below that.
TEST(Mix, HeuristicIsNearTheProgramOnLargerInstances) {
  for (std::uint64_t seed = 0; seed < effort(3U, 12U); ++seed) {
    MixInstanceSpec spec;
    spec.accelerators = 4;
    spec.kinds = 6;
    spec.buckets = 10;
    spec.workers = 5 + 10 * static_cast<double>(seed % 3);
    const MixProblem problem = random_mix(spec, 2000 + seed);
    MixEffort effort;
    effort.max_nodes = 100'000;
    const auto exact = exact_mix(problem, effort);
    const auto near = heuristic_mix(problem);
    ASSERT_TRUE(exact.ok() && near.ok()) << seed;
    expect_sound(problem, *exact);
    expect_sound(problem, *near);
    EXPECT_LE(near->cost_per_hour, 1.01 * exact->cost_per_hour) << seed;
    EXPECT_LE(near->bound_per_hour, exact->cost_per_hour + 1e-6) << seed;
    EXPECT_LE(near->gap(), 0.1) << seed;
  }
}

MixProblem two_sizes() {
  MixProblem problem;
  problem.accelerators = {{"small"}, {"large"}};
  problem.models = {{"chat", 0, {{"small-1", 0, 1, 1.0}, {"large-1", 1, 1, 3.0}}, {}}};
  // Short requests: 1/s of a small worker, 2/s of a large one. Long ones: 0.1/s and 1/s.
  problem.models.front().buckets = {{4, {1.0, 0.5}}, {2, {10.0, 1.0}}};
  return problem;
}

// Given short requests that are cheap on small workers and long ones that are cheap on large ones; expects each on its cheap
// kind, for less than either kind alone.
TEST(Mix, SendsEachSizeWhereItIsCheap) {
  const auto mix = exact_mix(two_sizes());
  ASSERT_TRUE(mix.ok());
  EXPECT_EQ(mix->models.front().workers, (std::vector<int>{4, 2}));
  EXPECT_DOUBLE_EQ(mix->cost_per_hour, 10);  // 12 with large ones only, 24 with small ones only
  EXPECT_NEAR(mix->models.front().shares[0][0], 1, kNear);
  EXPECT_NEAR(mix->models.front().shares[1][1], 1, kNear);
  EXPECT_TRUE(mix->missing.empty());
}

// Given a kind that excludes long requests and no room elsewhere; expects the short ones to be served, and the answer to name
// the missing GPUs and money.
TEST(Mix, SaysWhatIsMissing) {
  MixProblem problem = two_sizes();
  problem.models.front().buckets[1].load_s[0] = kInfinite;
  problem.accelerators[1].gpus = 1;
  for (const auto& mix : {exact_mix(problem), heuristic_mix(problem)}) {
    ASSERT_TRUE(mix.ok());
    EXPECT_NEAR(mix->unserved_per_s, 1, kNear);
    EXPECT_EQ(mix->models.front().workers, (std::vector<int>{4, 1}));
    EXPECT_THAT(mix->missing, Contains(HasSubstr("chat: 1 of 6 requests/s are not served for lack of room")));
    EXPECT_THAT(mix->missing, Contains(HasSubstr("takes 2 GPUs of large, but only 1 may be used")));
  }
  problem = two_sizes();
  problem.max_cost_per_hour = 7;
  const auto poor = exact_mix(problem);
  ASSERT_TRUE(poor.ok());
  EXPECT_LE(poor->cost_per_hour, 7);
  EXPECT_THAT(poor->missing, Contains(HasSubstr("costs 10 per hour, but only 7 may be spent")));
  problem.models.front().buckets[1].load_s = {kInfinite, kInfinite};
  const auto hopeless = exact_mix(problem);
  ASSERT_TRUE(hopeless.ok());
  EXPECT_NEAR(hopeless->unserved_per_s, 2, kNear);
  EXPECT_DOUBLE_EQ(hopeless->cost_per_hour, 4);
  EXPECT_THAT(hopeless->missing, Contains(HasSubstr("have sizes for which no kind meets the objectives")));
}

// Given two models that want the same GPUs; expects the one of higher priority to be served completely and the other with the
// rest.
TEST(Mix, TheHigherPriorityComesFirst) {
  MixProblem problem = two_sizes();
  problem.models.push_back(problem.models.front());
  problem.models[1].name = "batch";
  problem.models[0].priority = -1;
  problem.accelerators[0].gpus = 0;
  problem.accelerators[1].gpus = 5;
  for (const auto& mix : {exact_mix(problem), heuristic_mix(problem)}) {
    ASSERT_TRUE(mix.ok());
    EXPECT_EQ(mix->models[1].workers, (std::vector<int>{0, 4}));
    EXPECT_EQ(mix->models[1].unserved_per_s, 0);
    EXPECT_EQ(mix->models[0].workers, (std::vector<int>{0, 1}));
    EXPECT_NEAR(mix->models[0].unserved_per_s, 4, kNear);  // two of the four short ones
  }
}

// Given an immediate stop and a budget of one node; expects a valid mix that is marked as stopped.
TEST(Mix, StopsWithWhatItHas) {
  MixInstanceSpec spec;
  spec.kinds = 6;
  spec.buckets = 10;
  const MixProblem problem = random_mix(spec, 7);
  MixEffort effort;
  effort.stop = [] { return true; };
  for (const auto& mix : {exact_mix(problem, effort), heuristic_mix(problem, {}, effort)}) {
    ASSERT_TRUE(mix.ok());
    EXPECT_TRUE(mix->stopped);
    expect_sound(problem, *mix);
    EXPECT_GT(mix->bound_per_hour, 0);
  }
}

// Given invalid problems; expects errors with the value and the rule.
TEST(Mix, RefusesWhatMakesNoSense) {
  const auto refused = [](const std::function<void(MixProblem&)>& spoil, const char* text) {
    MixProblem problem = two_sizes();
    spoil(problem);
    const auto mix = heuristic_mix(problem);
    ASSERT_FALSE(mix.ok());
    EXPECT_EQ(mix.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(mix.error().message, HasSubstr(text));
  };
  refused([](MixProblem& p) { p.models.clear(); }, "models: must have at least one");
  refused([](MixProblem& p) { p.models[0].kinds[1].accelerator = 2; }, "accelerator: must be from 0 to 1 (got 2)");
  refused([](MixProblem& p) { p.models[0].kinds[0].gpus = 0; }, "gpus: must be at least 1 (got 0)");
  refused([](MixProblem& p) { p.models[0].kinds[0].price_per_hour = -1; }, "price: must be at least 0 (got -1)");
  refused([](MixProblem& p) { p.models[0].buckets[0].requests_per_s = kInfinite; },
          "requests per second: must be at least 0 (got inf)");
  refused([](MixProblem& p) { p.models[0].buckets[1].load_s.pop_back(); }, "loads: must be one for each of 2 kinds (got 1)");
  refused([](MixProblem& p) { p.models[0].buckets[1].load_s[0] = 0; }, "load: must be above 0 (got 0)");
  refused([](MixProblem& p) { p.max_gpus = -1; }, "max_gpus: must be at least 0 (got -1)");
}

}  // namespace
}  // namespace windlass::search
