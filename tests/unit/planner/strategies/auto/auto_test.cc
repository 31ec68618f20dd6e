// Tests `auto`: a valid plan immediately, brute force's cheapest with enough time, the same on any number of threads; and
// planning again.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/core/worker_models.h"
#include "planner/strategies/mix/mix_plan.h"
#include "planner/strategies/vidur/vidur.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

ProblemSpec small_spec(double requests_per_s = 40) {
  ProblemSpec spec;
  spec.tensor_parallel = {1, 2};
  spec.requests_per_s = requests_per_s;
  return spec;
}

bool holds(const Problem& problem, const Deployment& deployment, std::uint64_t seed, std::int64_t requests) {
  const auto result = try_out(problem, deployment, {problem.requests_per_s, requests, seed});
  return result.ok() && judge(problem, *result).holds;
}

// Given an immediate stop; expects a plan that is feasible in the simulator.
TEST(AutoPlan, HasAValidPlanAtOnce) {
  for (const double rate : {3.0, 40.0, 150.0}) {
    const OwnedProblem owned = make_problem(small_spec(rate));
    Effort effort;
    effort.stop = [] { return true; };
    const auto plan = auto_plan(owned.problem, {}, effort);
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(plan->holds);
    EXPECT_TRUE(plan->stopped);
    EXPECT_LE(plan->trials, 42);
    EXPECT_TRUE(holds(owned.problem, plan->deployment, 0, trial_requests(owned.problem, rate)));
  }
}

// Given objectives that pauses for prompts violate, so that the first guesses are too small, and an immediate stop; expects a
// feasible plan.
TEST(AutoPlan, GrowsUntilSomethingHolds) {
  ProblemSpec spec = small_spec(60);
  spec.model = "llama2-70b";
  spec.tensor_parallel = {2, 4};
  spec.ttft_s = 1;
  spec.tpot_s = 0.05;
  const OwnedProblem owned = make_problem(spec);
  Effort effort;
  effort.stop = [] { return true; };
  const auto plan = auto_plan(owned.problem, {}, effort);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->holds);
}

// The least worth of unified and split deployments that pass one trial, by exhaustive search.
double least_worth(const Problem& problem) {
  double least = std::numeric_limits<double>::infinity();
  const auto count = static_cast<int>(problem.kinds.size());
  const std::int64_t requests = trial_requests(problem, problem.requests_per_s);
  for (int p = 0; p < count; ++p) {
    for (int d = -1; d < count; ++d) {
      for (int prefills = 1; prefills <= 6; ++prefills) {
        for (int decodes = 1; decodes <= (d < 0 ? 1 : 6); ++decodes) {
          Deployment deployment = unified(problem, p, problem.engine, prefills);
          if (d >= 0) {
            deployment.pools.front().role = dispatch::Role::kPrefill;
            deployment.pools.push_back(problem.pool(d, dispatch::Role::kDecode, decodes));
          }
          const double worth = worth_of(problem, deployment);
          if (worth < least && check_room(problem, deployment).ok() && holds(problem, deployment, problem.seed, requests))
            least = worth;
        }
      }
    }
  }
  return least;
}

// Given three goals at two rates; expects brute force's worth over all counts, unless that is not feasible with confidence.
TEST(AutoPlan, IsTheCheapestOfBruteForce) {
  for (const Goal goal : {Goal::kCost, Goal::kPower, Goal::kThroughput}) {
    for (const double rate : {10.0, 60.0}) {
      OwnedProblem owned = make_problem(small_spec(rate));
      owned.problem.goal = goal;
      const auto plan = auto_plan(owned.problem, {}, {});
      ASSERT_TRUE(plan.ok());
      EXPECT_TRUE(plan->holds);
      EXPECT_DOUBLE_EQ(worth_of(owned.problem, plan->deployment), least_worth(owned.problem));
      EXPECT_FALSE(plan->considered.empty());
      for (const Rejection& other : plan->considered) {
        EXPECT_FALSE(other.rejected_because.empty());
        EXPECT_EQ(other.rejected_because.find("{}"), std::string::npos);
      }
    }
  }
}

// Given a plan; expects other seeds and more requests than the search saw to reach the stated attainment.
TEST(AutoPlan, HoldsOnOtherSeeds) {
  for (const double rate : {5.0, 25.0, 70.0}) {
    const OwnedProblem owned = make_problem(small_spec(rate));
    const auto plan = auto_plan(owned.problem, {}, {});
    ASSERT_TRUE(plan.ok());
    for (const std::uint64_t seed : {101, 102, 103}) EXPECT_TRUE(holds(owned.problem, plan->deployment, seed, 5000));
    EXPECT_GE(plan->predicted.capacity_requests_per_s, rate);
  }
}

// Given one and three threads, with and without a step budget, and the other strategies; expects the same plan.
TEST(AutoPlan, IsTheSameOnAnyNumberOfThreads) {
  static const std::vector<NamedStrategy> kProposers = {
      {"vidur", "", [](const Problem& problem, const Effort& effort) { return vidur_plan(problem, effort); }}};
  const OwnedProblem owned = make_problem(small_spec());
  AutoOptions options;
  options.proposers = &kProposers;
  for (const std::int64_t budget : {std::int64_t{20'000}, std::numeric_limits<std::int64_t>::max()}) {
    cli::ThreadExecutor one(1), three(3);
    Effort first, second;
    first.executor = &one;
    second.executor = &three;
    first.max_iterations = second.max_iterations = budget;
    const auto a = auto_plan(owned.problem, options, first);
    const auto b = auto_plan(owned.problem, options, second);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(describe(a->deployment), describe(b->deployment));
    EXPECT_EQ(a->reasons, b->reasons);
    EXPECT_EQ(a->iterations, b->iterations);
    EXPECT_EQ(a->trials, b->trials);
  }
}

// Given increasingly loose objectives; expects the plan never to cost more than 2 % more.
TEST(AutoPlan, LooserObjectivesNeverCostMore) {
  double before = std::numeric_limits<double>::infinity();
  for (const double factor : {1.0, 1.5, 2.5, 5.0}) {
    ProblemSpec spec = small_spec(80);
    spec.ttft_s = 0.25 * factor;
    spec.tpot_s = 0.02 * factor;
    const OwnedProblem owned = make_problem(spec);
    const auto plan = auto_plan(owned.problem, {}, {});
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(plan->holds);
    EXPECT_LE(plan->cost_per_hour, 1.02 * before);
    before = plan->cost_per_hour;
  }
}

// Given proposers that fail, promise infeasible plans, or have nothing better; expects the same plan as without them, and the
// reasons.
TEST(AutoPlan, TriesWhatIsProposed) {
  static const std::vector<NamedStrategy> kProposers = {
      {"silent", "",
       [](const Problem&, const Effort&) -> Result<Offer> {
         return Error{ErrorCode::kNotFound, "nothing here"};
       }},
      {"hopeful", "",
       [](const Problem& problem, const Effort&) -> Result<Offer> {
         Offer plan = plan_of(problem, "hopeful", unified(problem, 0, problem.engine, 1));
         plan.holds = true;
         return plan;
       }},
      {"dear", "",
       [](const Problem& problem, const Effort&) -> Result<Offer> {
         Offer plan = plan_of(problem, "dear", unified(problem, 0, problem.engine, 200));
         plan.holds = true;
         return plan;
       }},
  };
  const OwnedProblem owned = make_problem(small_spec(60));
  const auto alone = auto_plan(owned.problem, {}, {});
  AutoOptions options;
  options.proposers = &kProposers;
  const auto plan = auto_plan(owned.problem, options, {});
  ASSERT_TRUE(alone.ok() && plan.ok());
  EXPECT_EQ(plan->cost_per_hour, alone->cost_per_hour);
  const auto told = [](const auto& list, const auto& text_of, const char* text) {
    return std::any_of(list.begin(), list.end(), [&](const auto& one) { return text_of(one).find(text) != std::string::npos; });
  };
  const auto because = [](const Rejection& of) { return of.rejected_because; };
  EXPECT_TRUE(told(
      plan->reasons, [](const std::string& reason) { return reason; }, "silent found no plan: nothing here"));
  EXPECT_TRUE(told(plan->considered, because, "hopeful: it misses the objectives when tried again"));
  EXPECT_TRUE(told(plan->considered, because, "dear: costs"));
}

// Given one GPU of each of two classes, and rates from those that one serves to those that both do not; expects a plan wherever
// the mix has one, also where no single kind has room.
TEST(AutoPlan, FindsAMixWhereNoKindHasRoom) {
  static const std::vector<NamedStrategy> kProposers = {
      {"mix", "", [](const Problem& problem, const Effort& effort) { return mix_plan(problem, effort); }}};
  AutoOptions options;
  options.proposers = &kProposers;
  options.split = false;
  int only_mixed = 0;
  for (double rate = 20; rate < 150; rate *= 1.15) {
    ProblemSpec spec = small_spec(rate);
    spec.tensor_parallel = {1};
    OwnedProblem owned = make_problem(spec);
    for (AcceleratorChoice& choice : owned.problem.accelerators) choice.gpus = 1;
    const auto mix = mix_plan(owned.problem, {});
    const auto plan = auto_plan(owned.problem, options, {});
    ASSERT_TRUE(plan.ok());
    if (!mix.ok() || !mix->holds) continue;
    EXPECT_TRUE(plan->holds) << rate;
    if (plan->deployment.pools.size() == 2) ++only_mixed;
  }
  EXPECT_GT(only_mixed, 0);
}

// Given objectives that no worker meets, no room, and invalid problems; expects the nearest plan with what it misses, and
// errors.
TEST(AutoPlan, ReportsInfeasibleProblems) {
  ProblemSpec spec = small_spec();
  spec.tpot_s = 1e-4;
  const OwnedProblem owned = make_problem(spec);
  const auto nearest = auto_plan(owned.problem, {}, {});
  ASSERT_TRUE(nearest.ok());
  EXPECT_FALSE(nearest->holds);
  ASSERT_GE(nearest->reasons.size(), 3U);
  EXPECT_NE(nearest->reasons[0].find("meet the objectives"), std::string::npos);
  EXPECT_NE(nearest->reasons[1].find("its TPOT"), std::string::npos);
  EXPECT_NE(nearest->reasons[2].find("above TPOT 0.0001 s"), std::string::npos);
  // All miss every request; what was proposed instead takes longer per token.
  for (const Rejection& other : nearest->considered) EXPECT_LE(nearest->predicted.tpot_s, other.predicted.tpot_s);

  Problem none = owned.problem;
  none.max_gpus = 0;
  EXPECT_EQ(auto_plan(none, {}, {}).error().code, ErrorCode::kNotFound);
  Problem wrong = owned.problem;
  wrong.requests_per_s = -1;
  EXPECT_EQ(auto_plan(wrong, {}, {}).error().code, ErrorCode::kInvalidArgument);
}

// Given a problem planned again, unchanged, slightly changed, much changed, with longer prompts, or with less room; expects the
// plan to stay, without simulations, where it is feasible and cheapest, and its replacement to be feasible otherwise.
TEST(AutoReplan, KeepsWhatHoldsAndIsCheapest) {
  const OwnedProblem owned = make_problem(small_spec(100));
  const auto plan = auto_plan(owned.problem, {}, {});
  ASSERT_TRUE(plan.ok());
  const AutoMemory memory = remember(owned.problem, *plan);
  const auto again = [&](const Problem& problem) {
    auto replan = auto_replan(problem, memory, {}, {});
    EXPECT_TRUE(replan.ok());
    if (!replan->kept) {
      EXPECT_TRUE(replan->memory.plan.holds);
      EXPECT_TRUE(
          holds(problem, replan->memory.plan.deployment, problem.seed, trial_requests(problem, problem.requests_per_s)));
    }
    return std::move(replan).value();
  };
  EXPECT_TRUE(again(owned.problem).kept);
  Problem little = owned.problem;
  little.requests_per_s = 98;
  EXPECT_TRUE(again(little).kept);

  Problem more = owned.problem;
  more.requests_per_s = 300;
  const AutoReplan grown = again(more);
  EXPECT_FALSE(grown.kept);
  EXPECT_GT(grown.memory.plan.cost_per_hour, plan->cost_per_hour);

  Problem less = owned.problem;
  less.requests_per_s = 10;
  const AutoReplan shrunk = again(less);
  EXPECT_FALSE(shrunk.kept);
  EXPECT_LT(shrunk.memory.plan.cost_per_hour, plan->cost_per_hour);

  ProblemSpec longer = small_spec(100);
  longer.output = workload::LogNormalTokens{900, 0.8, 4096};
  EXPECT_FALSE(again(make_problem(longer).problem).kept);

  Problem narrow = owned.problem;
  narrow.accelerators[static_cast<std::size_t>(kind_of(narrow, plan->deployment.pools.front().spec).accelerator)].gpus = 0;
  EXPECT_FALSE(again(narrow).kept);
}

// Given a last plan of other kinds and a tolerance below 0; expects errors that name them.
TEST(AutoReplan, RefusesWhatDoesNotFit) {
  const OwnedProblem owned = make_problem(small_spec());
  AutoMemory memory;
  memory.plan = plan_of(owned.problem, "auto", unified(owned.problem, 0, owned.problem.engine, 1));
  memory.plan.deployment.pools.front().spec.tensor_parallel = 99;
  const auto other = auto_replan(owned.problem, memory, {}, {});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("must be of the problem's kinds (got a100-80gb-99"), std::string::npos);
  const auto negative = auto_replan(owned.problem, memory, {}, {}, -0.1);
  ASSERT_FALSE(negative.ok());
  EXPECT_NE(negative.error().message.find("tolerance"), std::string::npos);
}

}  // namespace
}  // namespace windlass::search
