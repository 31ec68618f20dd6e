// Tests strategy `mix`: buckets by size, dominated kinds, plans of several kinds that are feasible in the simulator and cost
// less than single-kind plans, limited room, invalid input.
#include "planner/strategies/mix/mix_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/core/worker_models.h"
#include "planner/strategies/vidur/vidur_space.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

using testing::Contains;
using testing::HasSubstr;

// Many short requests and some long ones, on accelerators of which none is best for both.
ProblemSpec mixed_spec(double requests_per_s = 20) {
  ProblemSpec spec;
  spec.accelerators = {"l4", "a100-80gb", "h100-80gb"};
  spec.tensor_parallel = {1, 2};
  spec.requests_per_s = requests_per_s;
  spec.ttft_s = 2;
  spec.tpot_s = 0.12;
  spec.attainment = 0.9;
  spec.input = workload::LogNormalTokens{800, 1.4, 16384};
  spec.output = workload::LogNormalTokens{200, 1.0, 1024};
  return spec;
}

bool holds(const Problem& problem, const Deployment& deployment, std::uint64_t seed, std::int64_t requests) {
  const auto result = try_out(problem, deployment, {problem.requests_per_s, requests, seed});
  return result.ok() && judge(problem, *result).holds;
}

// Given log-normal lengths; expects buckets whose shares add up, whose means are ordered, and whose loads match the closed
// form.
TEST(MixQuestion, CutsRequestsBySize) {
  const OwnedProblem owned = make_problem(mixed_spec());
  const MixQuestion question = mix_question(owned.problem);
  double shares = 0, input = 0;
  for (const MixQuestion::Bucket& bucket : question.buckets) {
    EXPECT_GE(bucket.share, 0.002);
    shares += bucket.share;
    input += bucket.share * bucket.lengths.input_tokens;
  }
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_NEAR(input, length_moments(*owned.problem.requests, owned.problem.seed, 4000).input_tokens, 1e-6);
  EXPECT_GE(question.buckets.size(), 10U);
  const MixModel& model = question.mix.models.front();
  ASSERT_TRUE(validate(question.mix).ok());
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    for (std::size_t k = 0; k < model.kinds.size(); ++k) {
      if (!std::isfinite(model.buckets[b].load_s[k])) continue;
      const WorkerKind& kind = owned.problem.kinds[static_cast<std::size_t>(question.kinds[k])];
      const double max_s = question.buckets[b].outside ? std::numeric_limits<double>::infinity() : 0.12;
      EXPECT_DOUBLE_EQ(1 / model.buckets[b].load_s[k],
                       steady_state(kind, owned.problem.engine, question.buckets[b].lengths, max_s).requests_per_s);
    }
  }
}

// Given every kind that was left out; expects one on the same accelerator that costs no more for any size.
TEST(MixQuestion, LeavesOutOnlyWhatIsBeaten) {
  const OwnedProblem owned = make_problem(mixed_spec());
  const Problem& problem = owned.problem;
  const MixQuestion question = mix_question(problem);
  const std::set<int> kept(question.kinds.begin(), question.kinds.end());
  EXPECT_EQ(kept.size() + question.notes.size(), problem.kinds.size());
  EXPECT_LT(kept.size(), problem.kinds.size());
  for (int k = 0; k < static_cast<int>(problem.kinds.size()); ++k) {
    if (kept.contains(k)) continue;
    const bool beaten = std::any_of(kept.begin(), kept.end(), [&](int other) {
      const auto& one = problem.kinds[static_cast<std::size_t>(k)];
      const auto& two = problem.kinds[static_cast<std::size_t>(other)];
      return one.accelerator == two.accelerator && worth_of_worker(problem, other) <= worth_of_worker(problem, k);
    });
    EXPECT_TRUE(beaten) << k;
  }
}

// Given requests of mixed sizes at several rates; expects plans that are feasible in the simulator, nearly so on other seeds,
// and from which no worker can be removed.
TEST(MixPlan, HoldsInTheSimulator) {
  int mixed = 0;
  for (const double rate : {4.0, 32.0, 80.0}) {
    const OwnedProblem owned = make_problem(mixed_spec(rate));
    const auto plan = mix_plan(owned.problem, {});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_TRUE(plan->holds) << rate;
    EXPECT_EQ(plan->strategy, "mix");
    EXPECT_GE(plan->predicted.capacity_requests_per_s, rate);
    EXPECT_FALSE(plan->reasons.empty());
    const std::int64_t requests = trial_requests(owned.problem, rate);
    EXPECT_TRUE(holds(owned.problem, plan->deployment, owned.problem.seed, requests));
    for (std::size_t p = 0; p < plan->deployment.pools.size(); ++p) {
      Deployment fewer = plan->deployment;
      if (--fewer.pools[p].workers == 0) fewer.pools.erase(fewer.pools.begin() + static_cast<std::ptrdiff_t>(p));
      if (fewer.pools.empty()) continue;
      EXPECT_FALSE(holds(owned.problem, fewer, owned.problem.seed, requests));
    }
    for (const Rejection& other : plan->considered) EXPECT_FALSE(other.rejected_because.empty());
    mixed += plan->deployment.pools.size() > 1 ? 1 : 0;
    RecordProperty("plan", describe(plan->deployment));
  }
  EXPECT_GE(mixed, 1);
}

// Given a cheap accelerator with few GPUs; expects the plan to use them and to add another accelerator, for less than the other
// alone, within every budget.
TEST(MixPlan, FillsUpWithAnotherAccelerator) {
  ProblemSpec spec = mixed_spec(120);
  spec.accelerators = {"a100-80gb", "h100-80gb"};
  spec.tensor_parallel = {1};
  OwnedProblem owned = make_problem(spec);
  owned.problem.accelerators[0].spec.price_per_hour = 1;
  owned.problem.accelerators[1].spec.price_per_hour = 4;
  const auto free = mix_plan(owned.problem, {});
  ASSERT_TRUE(free.ok() && free->holds);
  int cheap = 0;
  for (const Pool& pool : free->deployment.pools) {
    if (kind_of(owned.problem, pool.spec).accelerator == 0) cheap += pool.workers;
  }
  ASSERT_GE(cheap, 2);
  owned.problem.accelerators[0].gpus = cheap / 2;
  const auto plan = mix_plan(owned.problem, {});
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan->holds);
  EXPECT_TRUE(check_room(owned.problem, plan->deployment).ok());
  EXPECT_EQ(plan->deployment.pools.size(), 2U);
  EXPECT_EQ(plan->deployment.dispatch.policy, dispatch::PolicyKind::kBySize);
  EXPECT_GT(plan->cost_per_hour, free->cost_per_hour);
  owned.problem.accelerators[0].gpus = 0;
  const auto other = mix_plan(owned.problem, {});
  ASSERT_TRUE(other.ok() && other->holds);
  EXPECT_LT(plan->cost_per_hour, other->cost_per_hour);

  // `auto` tries the mix's proposal, so it costs no more.
  owned.problem.accelerators[0].gpus = cheap / 2;
  static const std::vector<NamedStrategy> kProposers = {
      {"mix", "", [](const Problem& problem, const Effort& effort) { return mix_plan(problem, effort); }}};
  AutoOptions options;
  options.split = false;
  const auto alone = auto_plan(owned.problem, options, {});
  options.proposers = &kProposers;
  const auto competed = auto_plan(owned.problem, options, {});
  ASSERT_TRUE(alone.ok() && competed.ok());
  EXPECT_TRUE(competed->holds);
  EXPECT_LE(competed->cost_per_hour, alone->cost_per_hour);
}

// Given too little room; expects the nearest plan within it, with what is missing. Given no room; expects an error that says
// so.
TEST(MixPlan, SaysWhatIsMissing) {
  OwnedProblem owned = make_problem(mixed_spec(300));
  owned.problem.max_gpus = 2;
  const auto plan = mix_plan(owned.problem, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->holds);
  EXPECT_LE(plan->gpus, 2);
  EXPECT_THAT(plan->reasons, Contains(HasSubstr("not served for lack of room")));
  EXPECT_THAT(plan->reasons, Contains(HasSubstr("only 2 may be used")));
  owned.problem.max_gpus = 0;
  const auto none = mix_plan(owned.problem, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("no room for one worker"));
}

// Given an objective that no kind meets; expects a plan marked as infeasible. Given invalid options and problems; expects
// errors that name them.
TEST(MixPlan, RefusesInvalidInput) {
  ProblemSpec spec = mixed_spec(4);
  spec.tpot_s = 1e-4;
  const auto hopeless = mix_plan(make_problem(spec).problem, {});
  ASSERT_TRUE(hopeless.ok());
  EXPECT_FALSE(hopeless->holds);
  OwnedProblem owned = make_problem(mixed_spec());
  MixPlanOptions options;
  options.tolerance = 0;
  EXPECT_THAT(mix_plan(owned.problem, options, {}).error().message, HasSubstr("tolerance"));
  owned.problem.requests_per_s = 0;
  EXPECT_EQ(mix_plan(owned.problem, {}).error().code, ErrorCode::kInvalidArgument);
}

// Given the same problem twice, with an immediate stop and with a step budget; expects the same plan, marked as stopped if it
// was.
TEST(MixPlan, IsTheSameTwiceAndStops) {
  const OwnedProblem owned = make_problem(mixed_spec(12));
  const auto once = mix_plan(owned.problem, {}), twice = mix_plan(owned.problem, {});
  ASSERT_TRUE(once.ok() && twice.ok());
  EXPECT_EQ(describe(once->deployment), describe(twice->deployment));
  EXPECT_EQ(once->reasons, twice->reasons);
  EXPECT_EQ(once->iterations, twice->iterations);
  Effort effort;
  effort.max_iterations = 1;
  const auto stopped = mix_plan(owned.problem, effort);
  ASSERT_TRUE(stopped.ok());
  EXPECT_TRUE(stopped->stopped);
  EXPECT_LE(stopped->trials, 3);
}

}  // namespace
}  // namespace windlass::search
