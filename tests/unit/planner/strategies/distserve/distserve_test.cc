// Tests DistServe: its searches' winners against exhaustive search, replication, room, affinity, and its plans in the
// simulator.
#include "planner/strategies/distserve/distserve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/distserve/distserve_units.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

using testing::HasSubstr;

DistServeOptions quick(NodeAffinity affinity) {
  DistServeOptions options;
  options.affinity = affinity;
  options.requests_per_probe = 200;
  options.finals = 0;
  return options;
}

OwnedProblem small_problem(double requests_per_s = 30, std::vector<std::string> accelerators = {"a100-80gb"}) {
  ProblemSpec spec;
  spec.accelerators = std::move(accelerators);
  spec.pipeline_stages = {1, 2};
  spec.requests_per_s = requests_per_s;
  OwnedProblem owned = make_problem(spec);
  owned.problem.requests_per_trial = 1000;
  return owned;
}

const WorkerKind& kind(const Problem& problem, int index) { return problem.kinds[static_cast<std::size_t>(index)]; }

// Given problems with different objectives and both algorithms; expects the pruned search to choose what the exhaustive one
// chooses, with the same goodputs, in fewer trials.
TEST(DistServe, PruningChangesNoWinner) {
  int fewer = 0;
  for (const auto& [ttft_s, tpot_s] : {std::pair(0.5, 0.03), {0.1, 0.1}, {2.0, 0.02}, {0.25, 0.05}}) {
    for (const NodeAffinity affinity : {NodeAffinity::kHigh, NodeAffinity::kLow}) {
      OwnedProblem owned = small_problem(30, {"a100-80gb", "h100-80gb"});
      owned.problem.objectives.both = sim::ServingObjectives{ttft_s, tpot_s};
      DistServeOptions options = quick(affinity);
      const auto pruned = distserve_choice(owned.problem, {}, options);
      options.prune = false;
      const auto all = distserve_choice(owned.problem, {}, options);
      ASSERT_TRUE(pruned.ok() && all.ok());
      EXPECT_EQ(pruned->prefill_kind, all->prefill_kind) << ttft_s << " " << tpot_s;
      EXPECT_EQ(pruned->decode_kind, all->decode_kind) << ttft_s << " " << tpot_s;
      EXPECT_EQ(pruned->prefill_per_s, all->prefill_per_s);
      EXPECT_EQ(pruned->decode_per_s, all->decode_per_s);
      EXPECT_LE(pruned->trials, all->trials);
      fewer += 2 * pruned->trials < all->trials ? 1 : 0;
    }
  }
  EXPECT_GE(fewer, 4);
}

// Given Algorithm 1; expects the goodput per worth of each phase to be the largest among goodputs computed here, kind by kind,
// on a fine grid of rates.
TEST(DistServe, BruteForceFindsNothingBetter) {
  OwnedProblem owned = small_problem();
  const DistServeOptions options = quick(NodeAffinity::kHigh);
  const auto choice = distserve_choice(owned.problem, {}, options);
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  const DistServeUnits units(owned.problem, options, options.requests_per_probe);
  for (const bool prefill : {true, false}) {
    const std::vector<Unit> all = prefill ? units.prefill() : units.decode();
    const int chosen = prefill ? choice->prefill_kind : choice->decode_kind;
    const double goodput = prefill ? choice->prefill_per_s : choice->decode_per_s;
    const double best = goodput / all[static_cast<std::size_t>(chosen)].worth;
    for (const Unit& unit : all) {
      double highest = 0;
      for (double rate = 0.5; rate <= unit.ceiling_per_s; rate *= 1.1) {
        const auto run = try_out(*unit.problem, unit.deployment, {rate, options.requests_per_probe, owned.problem.seed});
        ASSERT_TRUE(run.ok());
        if (!judge(*unit.problem, *run).holds) break;
        highest = rate;
      }
      EXPECT_LE(highest / unit.worth, best * 1.03) << describe(unit.deployment);
    }
  }
}

// Given ten seeds; expects goodputs with finals to differ by less than three quarters of what they differ by without.
TEST(DistServe, FinalsMakeGoodputsDependLessOnTheSeed) {
  for (const NodeAffinity affinity : {NodeAffinity::kHigh, NodeAffinity::kLow}) {
    OwnedProblem owned = small_problem();
    std::array<double, 2> ranges{};
    for (const int finals : {0, 2}) {
      double low = std::numeric_limits<double>::infinity(), high = 0;
      for (owned.problem.seed = 1; owned.problem.seed <= 10; ++owned.problem.seed) {
        DistServeOptions options = quick(affinity);
        options.finals = finals;
        const auto choice = distserve_choice(owned.problem, {}, options);
        ASSERT_TRUE(choice.ok()) << choice.error().message;
        const double goodput = choice->goodput_per_worth(kind(owned.problem, choice->prefill_kind).gpus(),
                                                         kind(owned.problem, choice->decode_kind).gpus());
        low = std::min(low, goodput);
        high = std::max(high, goodput);
      }
      ranges[finals > 0 ? 1 : 0] = std::log(high / low);
    }
    EXPECT_LT(ranges[1], 0.75 * ranges[0]);
  }
}

// Given plans of both algorithms; expects them to be feasible when simulated again, also on other seeds, to have the pools'
// roles, and to predict the results: attainment at least the stated confidence, the capacity feasible, TTFT and TPOT similar.
TEST(DistServe, PlansHoldInTheSimulator) {
  for (const NodeAffinity affinity : {NodeAffinity::kHigh, NodeAffinity::kLow}) {
    const OwnedProblem owned = small_problem();
    const Problem& problem = owned.problem;
    const auto plan = distserve_plan(problem, {}, quick(affinity));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_TRUE(plan->holds);
    EXPECT_EQ(plan->strategy, "distserve");
    ASSERT_EQ(plan->deployment.pools.size(), 2u);
    EXPECT_EQ(plan->deployment.pools[0].role, dispatch::Role::kPrefill);
    EXPECT_EQ(plan->deployment.pools[1].role, dispatch::Role::kDecode);
    EXPECT_EQ(plan->deployment.pairs_share_a_node, affinity == NodeAffinity::kLow);
    if (affinity == NodeAffinity::kLow) {
      EXPECT_EQ(plan->deployment.pools[0].workers, plan->deployment.pools[1].workers);
    }
    EXPECT_EQ(plan->gpus, gpus_of(plan->deployment));
    EXPECT_FALSE(plan->considered.empty());
    EXPECT_LE(plan->considered.size(), kMaxConsidered);
    for (const Rejection& other : plan->considered) EXPECT_FALSE(other.rejected_because.empty());
    EXPECT_GE(plan->predicted.capacity_requests_per_s, problem.requests_per_s);
    const auto at_capacity = try_out(problem, plan->deployment,
                                     {plan->predicted.capacity_requests_per_s, problem.requests_per_trial, problem.seed + 1});
    ASSERT_TRUE(at_capacity.ok());
    EXPECT_TRUE(judge(problem, *at_capacity).holds);
    double attained = 0;
    constexpr int kSeeds = 8;
    for (std::uint64_t seed = 100; seed < 100 + kSeeds; ++seed) {
      const auto run = try_out(problem, plan->deployment, {problem.requests_per_s, 2000, seed});
      ASSERT_TRUE(run.ok());
      attained += run->attainment / kSeeds;
      EXPECT_NEAR(run->tpot.p95_s, plan->predicted.tpot_s, 0.2 * plan->predicted.tpot_s);
    }
    EXPECT_GE(attained, plan->predicted.attainment_low - 0.01);
    EXPECT_GE(attained, problem.objectives.attainment - 0.01);
  }
}

// Given executors of 1 and 3 threads; expects the same plan and number of trials.
TEST(DistServe, TheSameOnAnyNumberOfCores) {
  const OwnedProblem owned = small_problem();
  for (const NodeAffinity affinity : {NodeAffinity::kHigh, NodeAffinity::kLow}) {
    cli::ThreadExecutor one(1), three(3);
    Effort alone, side_by_side;
    alone.executor = &one;
    side_by_side.executor = &three;
    const auto first = distserve_plan(owned.problem, alone, quick(affinity));
    const auto second = distserve_plan(owned.problem, side_by_side, quick(affinity));
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(describe(first->deployment), describe(second->deployment));
    EXPECT_EQ(first->trials, second->trials);
    EXPECT_EQ(first->iterations, second->iterations);
    EXPECT_EQ(first->reasons, second->reasons);
    EXPECT_EQ(first->predicted.ttft_s, second->predicted.ttft_s);
  }
}

// Given looser objectives; expects no kind's goodput to fall, nor that of the choice. Given more requests; expects no fewer
// instances.
TEST(DistServe, LooserIsNeverWorse) {
  double last = 0;
  for (const double factor : {0.5, 1.0, 2.0, 4.0}) {
    OwnedProblem owned = small_problem();
    owned.problem.objectives.both = sim::ServingObjectives{0.4 * factor, 0.03 * factor};
    const auto choice = distserve_choice(owned.problem, {}, quick(NodeAffinity::kHigh));
    ASSERT_TRUE(choice.ok());
    const double price = owned.problem.price_per_hour(kind(owned.problem, 0));
    const double gpus_prefill = kind(owned.problem, choice->prefill_kind).gpus();
    const double gpus_decode = kind(owned.problem, choice->decode_kind).gpus();
    const double goodput = choice->goodput_per_worth(gpus_prefill * price, gpus_decode * price);
    EXPECT_GE(goodput, 0.98 * last) << factor;
    last = goodput;
  }
  int gpus = 0;
  for (const double rate : {1.0, 10.0, 40.0, 160.0}) {
    const OwnedProblem owned = small_problem(rate);
    const auto plan = distserve_plan(owned.problem, {}, quick(NodeAffinity::kHigh));
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(plan->holds);
    EXPECT_GE(plan->gpus, gpus);
    gpus = plan->gpus;
  }
}

// Given a network between nodes that is fast, slow, slow but measured as fast, and slow with no pair that fits on a node;
// expects Algorithm 1, 2, 1 and 1. Given one node; expects Algorithm 1 with caches inside the node; each with its reason.
TEST(DistServe, TheNetworkDecides) {
  OwnedProblem owned = small_problem();
  const auto choice = [&] { return distserve_choice(owned.problem, {}, quick(NodeAffinity::kAuto)).value(); };
  owned.problem.between_nodes = {100e9, 5e-6, 0, 0};
  EXPECT_EQ(choice().affinity, NodeAffinity::kHigh);
  EXPECT_THAT(choice().why, HasSubstr("high node affinity (Algorithm 1): a mean prompt's cache"));
  owned.problem.between_nodes = {1e9, 5e-6, 0, 0};
  EXPECT_EQ(choice().affinity, NodeAffinity::kLow);
  EXPECT_THAT(choice().why, HasSubstr("low node affinity (Algorithm 2)"));
  EXPECT_TRUE(choice().one.pairs_share_a_node);
  for (WorkerKind& of : owned.problem.kinds) of.between_nodes = planner::KvTransferPath{100e9, 5e-6, 0, 0};
  EXPECT_EQ(choice().affinity, NodeAffinity::kHigh) << "as it was measured";
  for (WorkerKind& of : owned.problem.kinds) of.between_nodes.reset();
  owned.problem.accelerators.front().gpus = 8;
  EXPECT_EQ(choice().affinity, NodeAffinity::kHigh);
  EXPECT_THAT(choice().why, HasSubstr("one node"));
  EXPECT_TRUE(choice().one.pairs_share_a_node);
  owned.problem.accelerators.front().gpus = 80;
  std::erase_if(owned.problem.kinds, [](const WorkerKind& of) { return of.gpus() != 4 || of.pipeline_stages != 1; });
  owned.problem.accelerators.front().spec.gpus_per_node = 7;
  EXPECT_EQ(choice().affinity, NodeAffinity::kHigh);
  EXPECT_THAT(choice().why, HasSubstr("caches must leave it"));
  const auto low = distserve_choice(owned.problem, {}, quick(NodeAffinity::kLow));
  ASSERT_FALSE(low.ok());
  EXPECT_EQ(low.error().code, ErrorCode::kNotFound);
}

// Given Algorithm 2 on nodes of 4 GPUs; expects pairs that fit: stages of both on the same nodes, over as few nodes as
// possible.
TEST(DistServe, PairsFitTheirNodes) {
  OwnedProblem owned = small_problem();
  owned.problem.accelerators.front().spec.gpus_per_node = 4;
  owned.problem.accelerators.front().gpus = 16;
  const DistServeUnits units(owned.problem, quick(NodeAffinity::kLow), 100);
  int spread = 0;
  for (const DistServeUnits::Pair& pair : units.pairs()) {
    const WorkerKind &prefill = kind(owned.problem, pair.prefill), &decode = kind(owned.problem, pair.decode);
    EXPECT_EQ(prefill.pipeline_stages % pair.segments, 0);
    EXPECT_EQ(decode.pipeline_stages % pair.segments, 0);
    EXPECT_LE((prefill.gpus() + decode.gpus()) / pair.segments, 4);
    spread += pair.segments > 1 ? 1 : 0;
  }
  EXPECT_GT(spread, 0);
  const auto has = [&](int prefill_tp, int decode_tp) {
    return std::any_of(units.pairs().begin(), units.pairs().end(), [&](const DistServeUnits::Pair& pair) {
      const WorkerKind &prefill = kind(owned.problem, pair.prefill), &decode = kind(owned.problem, pair.decode);
      return prefill.tensor_parallel == prefill_tp && decode.tensor_parallel == decode_tp && prefill.pipeline_stages == 1 &&
             decode.pipeline_stages == 1;
    });
  };
  EXPECT_TRUE(has(2, 2));
  EXPECT_FALSE(has(4, 1));
}

// Given fewer GPUs than the best split needs at the rate; expects a split that fits if there is one; otherwise one that fits,
// is marked as infeasible, and says so; and no plan if not even two instances fit. More GPUs never lower what a plan uses.
TEST(DistServe, RoomBoundsThePlan) {
  double last = 0;
  for (const int gpus : {2, 4, 8, 16, 32}) {
    OwnedProblem owned = small_problem(40);
    owned.problem.max_gpus = gpus;
    const auto plan = distserve_plan(owned.problem, {}, quick(NodeAffinity::kHigh));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_LE(plan->gpus, gpus);
    const double takes = plan->holds ? std::min(40.0, plan->predicted.capacity_requests_per_s) : plan->gpus * 0.1;
    EXPECT_GE(takes, last);
    last = takes;
    if (gpus == 2) {
      EXPECT_FALSE(plan->holds);
      EXPECT_THAT(plan->reasons, testing::Contains(HasSubstr("no room for this rate")));
      EXPECT_THAT(plan->reasons, testing::Contains(HasSubstr("misses the objectives")));
    }
    if (gpus == 32) {
      EXPECT_TRUE(plan->holds);
    }
  }
  OwnedProblem owned = small_problem();
  owned.problem.max_gpus = 1;
  const auto none = distserve_plan(owned.problem, {}, quick(NodeAffinity::kHigh));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("no room for one prefill and one decoding instance"));
}

// Given objectives that no kind meets even alone; expects the nearest plan with the reason.
TEST(DistServe, ImpossibleObjectives) {
  OwnedProblem owned = small_problem();
  owned.problem.objectives.both = sim::ServingObjectives{1e-4, 0.03};
  const auto plan = distserve_plan(owned.problem, {}, quick(NodeAffinity::kHigh));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_FALSE(plan->holds);
  EXPECT_THAT(plan->reasons, testing::Contains(HasSubstr("no prefill instance meets the objectives")));
  EXPECT_EQ(plan->predicted.capacity_requests_per_s, 0);
  const auto pairs = distserve_plan(owned.problem, {}, quick(NodeAffinity::kLow));
  ASSERT_TRUE(pairs.ok());
  EXPECT_FALSE(pairs->holds);
  EXPECT_EQ(pairs->deployment.pools[0].workers, pairs->deployment.pools[1].workers);
}

// Given limits instead of joint objectives; expects a plan that meets them.
TEST(DistServe, LimitsInsteadOfJointObjectives) {
  OwnedProblem owned = small_problem();
  owned.problem.objectives.both.reset();
  owned.problem.objectives.limits = {{Metric::kTtft, 90, 0.5}, {Metric::kTpot, 99, 0.04}};
  const auto plan = distserve_plan(owned.problem, {}, quick(NodeAffinity::kHigh));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->holds);
  EXPECT_LE(plan->predicted.tpot_s, 0.04);
  EXPECT_EQ(plan->predicted.attainment, 1);
}

// Given answers of a single token, which need no decoding; expects a plan with one decoding instance.
TEST(DistServe, AnswersOfOneToken) {
  ProblemSpec spec;
  spec.output = workload::FixedTokens{1};
  const OwnedProblem owned = make_problem(spec);
  const auto plan = distserve_plan(owned.problem, {}, quick(NodeAffinity::kHigh));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->holds);
  EXPECT_EQ(plan->deployment.pools[1].workers, 1);
}

// Given an immediate stop; expects Cancelled. Given a step budget that ends after the first wave; expects a plan marked as
// stopped.
TEST(DistServe, StopsEarly) {
  const OwnedProblem owned = small_problem();
  Effort effort;
  effort.stop = [] { return true; };
  const auto cancelled = distserve_plan(owned.problem, effort, quick(NodeAffinity::kHigh));
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  Effort budget;
  budget.max_iterations = 1;
  std::vector<double> shares;
  budget.progress = [&](std::string_view, double share) { shares.push_back(share); };
  const auto plan = distserve_plan(owned.problem, budget, quick(NodeAffinity::kHigh));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->stopped);
  EXPECT_EQ(shares.size(), 1u);
}

// Given options and a problem with errors; expects them to be named.
TEST(DistServe, NamesMistakes) {
  OwnedProblem owned = small_problem();
  const auto message = [&](const DistServeOptions& options) {
    const auto plan = distserve_plan(owned.problem, {}, options);
    EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
    return plan.error().message;
  };
  DistServeOptions options;
  options.tolerance = 0;
  EXPECT_EQ(message(options), "test: distserve.tolerance: must be above 0 and at most 1 (got 0)");
  options = {};
  options.saturation = 1.5;
  EXPECT_EQ(message(options), "test: distserve.saturation: must be above 0 and at most 1 (got 1.5)");
  options = {};
  options.requests_per_probe = -5;
  EXPECT_THAT(message(options), HasSubstr("distserve.requestsPerProbe: must be at least 1"));
  options = {};
  options.prefill_batch_tokens = -1;
  EXPECT_THAT(message(options), HasSubstr("distserve.prefillBatchTokens: must be at least 1"));
  owned.problem.requests_per_s = 0;
  EXPECT_THAT(message({}), HasSubstr("requestsPerSecond"));
}

}  // namespace
}  // namespace windlass::search
