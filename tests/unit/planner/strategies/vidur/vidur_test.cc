// Tests Vidur-Search against brute force: the same winner whatever is skipped, on any number of threads.
#include "planner/strategies/vidur/vidur.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/steady_rate.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

ProblemSpec small_spec() {
  ProblemSpec spec;
  spec.tensor_parallel = {1, 2};
  spec.pipeline_stages = {1, 2};
  spec.requests_per_s = 30;
  return spec;
}

OwnedProblem small_problem(ProblemSpec spec = small_spec()) {
  OwnedProblem owned = make_problem(spec);
  owned.problem.objectives.both.reset();
  owned.problem.objectives.limits = {{Metric::kTtft, 90, 1}, {Metric::kTpot, 99, 0.05}};
  owned.problem.max_gpus = 4;
  return owned;
}

VidurOptions small_options() {
  VidurOptions options;
  options.space.batch_sizes = {16, 128};
  options.space.chunk_tokens = {512};
  options.arrivals_s = 30;
  return options;
}

const VidurPoint& best_of(const VidurFound& found) { return found.points[static_cast<std::size_t>(found.best)]; }

// Given a space of 48 configurations for each definition of capacity, once with every capacity and once with early stops;
// expects both, and a loop over capacity_of(), to agree on the most requests per dollar.
TEST(VidurSearch, SkipsNoWinner) {
  for (const VidurLimits limits : {VidurLimits::kInCapacity, VidurLimits::kAtCapacity}) {
    for (const char* model : {limits == VidurLimits::kInCapacity ? "llama3.1-8b" : "llama2-7b"}) {
      ProblemSpec spec = small_spec();
      spec.model = model;
      OwnedProblem owned = small_problem(spec);
      owned.problem.max_gpus = std::numeric_limits<int>::max();  // one replica represents all
      VidurOptions options = small_options();
      options.limits = limits;
      if (limits == VidurLimits::kAtCapacity) {  // where requests wait
        owned.problem.objectives.limits = {{Metric::kTtft, 90, 6}, {Metric::kTpot, 99, 0.2}};
      }
      const auto quick = vidur_search(owned.problem, options, {});
      options.every_capacity = true;
      const auto every = vidur_search(owned.problem, options, {});
      ASSERT_TRUE(quick.ok() && every.ok());
      ASSERT_EQ(every->points.size(), 48U);
      ASSERT_GE(every->best, 0);
      EXPECT_EQ(quick->best, every->best);
      EXPECT_LT(quick->iterations, every->iterations / 2);

      Problem judged = owned.problem;
      if (limits == VidurLimits::kAtCapacity) judged.objectives.limits.clear();
      judged.objectives.limits.push_back({Metric::kSchedulingDelay, 99, 5});
      double most = 0;
      for (const VidurPoint& point : every->points) {
        CapacitySearch search;
        search.requests = std::max<std::int64_t>(300, static_cast<std::int64_t>(std::ceil(point.steady_requests_per_s * 30)));
        const auto capacity = capacity_of(judged, unified(judged, point.kind, point.engine, 1), search);
        ASSERT_TRUE(capacity.ok());
        if (capacity->requests_per_s <= 0 || !judge(owned.problem, capacity->at).holds) continue;
        const WorkerKind& kind = owned.problem.kinds[static_cast<std::size_t>(point.kind)];
        most = std::max(most, capacity->requests_per_s / owned.problem.price_per_hour(kind));
      }
      EXPECT_NEAR(best_of(*every).per_worth, most, 0.021 * most);
    }
  }
}

// Given room for 4 GPUs; expects the winner's replicas to fill it and to have the stated capacity in the simulator, and that
// more room never lowers it.
TEST(VidurSearch, CountsReplicas) {
  double before = 0;
  for (const int gpus : {1, 2, 4, 8}) {
    OwnedProblem owned = small_problem();
    owned.problem.max_gpus = gpus;
    const auto found = vidur_search(owned.problem, small_options(), {});
    ASSERT_TRUE(found.ok());
    ASSERT_GE(found->best, 0);
    const VidurPoint& best = best_of(*found);
    const Deployment deployment = unified(owned.problem, best.kind, best.engine, best.replicas);
    EXPECT_EQ(gpus_of(deployment), gpus);
    EXPECT_GE(best.requests_per_s, 0.98 * before);
    before = best.requests_per_s;
    const auto again = try_out(owned.problem, deployment, {best.requests_per_s, best.trial_requests, 0});
    ASSERT_TRUE(again.ok());
    EXPECT_LT(again->scheduling_delay.p99_s, 5);
    EXPECT_TRUE(judge(owned.problem, *again).holds);
  }
}

// Given one thread and three threads, each with a step budget; expects the same points and the same plan.
TEST(VidurSearch, IsTheSameOnAnyNumberOfThreads) {
  for (const std::int64_t budget : {std::numeric_limits<std::int64_t>::max(), std::int64_t{50'000}}) {
    const OwnedProblem owned = small_problem();
    cli::ThreadExecutor one(1), three(3);
    Effort first, second;
    first.executor = &one;
    second.executor = &three;
    first.max_iterations = second.max_iterations = budget;
    const auto a = vidur_search(owned.problem, small_options(), first);
    const auto b = vidur_search(owned.problem, small_options(), second);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->best, b->best);
    EXPECT_EQ(a->iterations, b->iterations);
    EXPECT_EQ(a->stopped, budget == 50'000);
    for (std::size_t i = 0; i < a->points.size(); ++i) EXPECT_EQ(a->points[i].requests_per_s, b->points[i].requests_per_s);
    const auto p = vidur_plan(owned.problem, small_options(), first);
    const auto q = vidur_plan(owned.problem, small_options(), second);
    ASSERT_TRUE(p.ok() && q.ok());
    EXPECT_EQ(p->reasons, q->reasons);
    EXPECT_EQ(p->iterations, q->iterations);
    EXPECT_EQ(p->considered.size(), q->considered.size());
  }
}

// Given all capacities; expects fronts without dominated points that leave out only dominated ones.
TEST(VidurSearch, FrontsAreThoseOfBruteForce) {
  const OwnedProblem owned = small_problem();
  VidurOptions options = small_options();
  options.every_capacity = true;
  const auto found = vidur_search(owned.problem, options, {});
  ASSERT_TRUE(found.ok());
  for (double VidurPoint::*const latency : {&VidurPoint::ttft_p90_s, &VidurPoint::tbt_p99_s}) {
    const std::vector<int> front = pareto_front(*found, latency);
    ASSERT_FALSE(front.empty());
    for (int i = 0; i < static_cast<int>(found->points.size()); ++i) {
      const VidurPoint& point = found->points[static_cast<std::size_t>(i)];
      if (point.requests_per_s <= 0) continue;
      bool dominated = false;
      for (const VidurPoint& other : found->points) {
        dominated =
            dominated || (other.requests_per_s > 0 && other.*latency <= point.*latency && other.per_worth > point.per_worth);
        dominated =
            dominated || (other.requests_per_s > 0 && other.*latency < point.*latency && other.per_worth >= point.per_worth);
      }
      const bool in_front = std::find(front.begin(), front.end(), i) != front.end();
      EXPECT_TRUE(in_front ? !dominated : (dominated || point.per_worth <= best_of(*found).per_worth));
      if (!dominated) {
        const bool equal_is_in_front = std::any_of(front.begin(), front.end(), [&](int j) {
          const VidurPoint& other = found->points[static_cast<std::size_t>(j)];
          return other.*latency == point.*latency && other.per_worth == point.per_worth;
        });
        EXPECT_TRUE(equal_is_in_front);
      }
    }
  }
}

// Given configurations of two models on two accelerators; expects no capacity to exceed the steady rate by more than its
// margin, on which searches rely.
TEST(SteadyRate, BoundsCapacities) {
  for (const char* model : {"llama3.1-8b", "llama2-7b"}) {
    ProblemSpec spec = small_spec();
    spec.model = model;
    OwnedProblem owned = small_problem(spec);
    owned.problem.max_gpus = std::numeric_limits<int>::max();
    VidurOptions options = small_options();
    options.limits = VidurLimits::kAtCapacity;
    options.arrivals_s = 120;
    options.every_capacity = true;
    const auto found = vidur_search(owned.problem, options, {});
    ASSERT_TRUE(found.ok());
    double most = 0;
    for (const VidurPoint& point : found->points) most = std::max(most, point.requests_per_s / point.steady_requests_per_s);
    EXPECT_LT(most, 0.9 * kSteadyRateMargin);
    EXPECT_GT(most, 0.8);  // the bound is not loose
  }
}

// The least worth over every configuration and number of workers, by exhaustive search.
double least_worth(Problem problem, const VidurFound& space) {
  problem.objectives.limits.push_back({Metric::kSchedulingDelay, 99, 5});
  double least = std::numeric_limits<double>::infinity();
  for (const VidurPoint& point : space.points) {
    for (int workers = 1; workers <= max_workers(problem, point.kind); ++workers) {
      const Deployment deployment = unified(problem, point.kind, point.engine, workers);
      const double worth = worth_of(problem, deployment);
      if (worth >= least) break;
      const auto result =
          try_out(problem, deployment, {problem.requests_per_s, trial_requests(problem, problem.requests_per_s)});
      if (result.ok() && judge(problem, *result).holds) least = worth;
    }
  }
  return least;
}

// Given three goals and rates; expects brute force's worth, a plan that is feasible when simulated again, and alternatives with
// reasons.
TEST(VidurPlan, IsTheCheapestOfBruteForce) {
  for (const Goal goal : {Goal::kCost, Goal::kPower, Goal::kThroughput}) {
    for (const double rate : {5.0, 30.0, 90.0}) {
      ProblemSpec spec = small_spec();
      spec.requests_per_s = rate;
      OwnedProblem owned = small_problem(spec);
      owned.problem.max_gpus = 12;
      owned.problem.goal = goal;
      VidurOptions options = small_options();
      const auto plan = vidur_plan(owned.problem, options, {});
      ASSERT_TRUE(plan.ok());
      options.every_capacity = true;
      Effort none;
      none.max_iterations = 1;  // only its own space
      const auto space = vidur_search(owned.problem, options, none);
      ASSERT_TRUE(space.ok());
      EXPECT_DOUBLE_EQ(worth_of(owned.problem, plan->deployment), least_worth(owned.problem, *space));
      EXPECT_TRUE(plan->holds);
      EXPECT_FALSE(plan->reasons.empty());
      EXPECT_FALSE(plan->considered.empty());
      for (const Rejection& other : plan->considered) EXPECT_FALSE(other.rejected_because.empty());
      EXPECT_GE(plan->predicted.capacity_requests_per_s, rate);
      const auto again = try_out(owned.problem, plan->deployment, {rate, trial_requests(owned.problem, rate)});
      ASSERT_TRUE(again.ok());
      EXPECT_TRUE(judge(owned.problem, *again).holds);
    }
  }
}

// Given increasingly loose limits; expects the plan never to cost more.
TEST(VidurPlan, LooserLimitsNeverCostMore) {
  double before = std::numeric_limits<double>::infinity();
  for (const double factor : {1.0, 1.5, 2.0, 4.0}) {
    OwnedProblem owned = small_problem();
    owned.problem.requests_per_s = 60;
    owned.problem.max_gpus = 32;
    owned.problem.objectives.limits = {{Metric::kTtft, 90, 0.2 * factor}, {Metric::kTpot, 99, 0.02 * factor}};
    const auto plan = vidur_plan(owned.problem, small_options(), {});
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(plan->holds);
    EXPECT_LE(plan->cost_per_hour, before);
    before = plan->cost_per_hour;
  }
}

// Given a limit that no worker meets; expects the nearest plan, marked as infeasible, with what it misses.
TEST(VidurPlan, NamesTheNearestWhenNothingHolds) {
  OwnedProblem owned = small_problem();
  owned.problem.objectives.limits = {{Metric::kTpot, 99, 1e-4}};
  const auto plan = vidur_plan(owned.problem, small_options(), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->holds);
  ASSERT_EQ(plan->reasons.size(), 1U);
  EXPECT_NE(plan->reasons.front().find("TPOT P99"), std::string::npos);
}

// Given invalid options, no room, an immediate stop and a problem without objectives; expects errors that name them.
TEST(VidurPlan, RefusesBadInput) {
  const OwnedProblem owned = small_problem();
  const auto refused = [&](const auto& change, ErrorCode code, const char* named) {
    Problem problem = owned.problem;
    VidurOptions options = small_options();
    Effort effort;
    change(problem, options, effort);
    const auto plan = vidur_plan(problem, options, effort);
    const auto found = vidur_search(problem, options, effort);
    ASSERT_FALSE(plan.ok());
    ASSERT_FALSE(found.ok());
    for (const Error& error : {plan.error(), found.error()}) {
      EXPECT_EQ(error.code, code);
      EXPECT_NE(error.message.find(named), std::string::npos) << error.message;
    }
  };
  constexpr auto kWrong = ErrorCode::kInvalidArgument;
  refused([](Problem&, VidurOptions& o, Effort&) { o.space.batchings.clear(); }, kWrong, "batchings");
  refused([](Problem&, VidurOptions& o, Effort&) { o.space.batch_sizes = {0}; }, kWrong,
          "batch sizes: must be numbers of at least 1 (got 0)");
  refused([](Problem&, VidurOptions& o, Effort&) { o.space.chunk_tokens.clear(); }, kWrong,
          "chunk tokens: must be at least one number (got none)");
  refused([](Problem&, VidurOptions& o, Effort&) { o.space.whole_prompt_tokens = -1; }, kWrong,
          "whole prompt tokens: must be numbers of at least 1 (got -1)");
  refused([](Problem&, VidurOptions& o, Effort&) { o.tolerance = 0; }, kWrong, "tolerance: must be ");
  refused([](Problem&, VidurOptions& o, Effort&) { o.arrivals_s = std::numeric_limits<double>::quiet_NaN(); }, kWrong,
          "arrivals");
  refused([](Problem&, VidurOptions& o, Effort&) { o.scheduling_delay_s = -5; }, kWrong, "scheduling delay");
  refused([](Problem&, VidurOptions& o, Effort&) { o.scheduling_percentile = 98; }, kWrong,
          "percentile: must be 50, 90, 95 or 99 (got 98)");
  refused([](Problem& p, VidurOptions&, Effort&) { p.objectives.limits.clear(); }, kWrong, "slo");
  refused([](Problem& p, VidurOptions&, Effort&) { p.max_gpus = 0; }, ErrorCode::kNotFound, "room");
  refused([](Problem&, VidurOptions&, Effort& e) { e.stop = [] { return true; }; }, ErrorCode::kCancelled, "stopped");
}

}  // namespace
}  // namespace windlass::search
