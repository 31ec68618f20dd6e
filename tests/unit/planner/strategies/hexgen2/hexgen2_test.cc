// Tests HexGen-2's search against exhaustive search, its baselines and an upper bound; its plans; and HexGen.
#include "planner/strategies/hexgen2/hexgen2.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/hexgen2/hexgen2_exhaustive.h"
#include "tests/effort.h"
#include "tests/reference/papers/hexgen.h"
#include "tests/reference/papers/hexgen2_bound.h"
#include "tests/unit/planner/strategies/hexgen2/clusters.h"

namespace windlass::hetero {
namespace {

using testing::HasSubstr;

std::int64_t flow_with(const RandomCase& test, Hexgen2Options options) {
  const auto found = hexgen2_schedule(test.cluster, test.task, 1, {}, options);
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? found->flow : -1;
}

Hexgen2Options exhaustive(bool fewer_groups) {
  Hexgen2Options options;
  options.search = Hexgen2Search::kExhaustive;
  options.fewer_groups = fewer_groups;
  return options;
}

// Given Appendix E's 4 H100 and 4 A100, both models and all four workloads; expects exactly exhaustive search's flow, over the
// same number of groups and with fewer allowed.
TEST(Hexgen2, EqualsExhaustiveSearchOnAppendixE) {
  for (const char* model : {"llama2-70b", "opt-30b"}) {
    for (const bench::HexGenWorkload& workload : {bench::kHpld, bench::kHphd, bench::kLphd, bench::kLpld}) {
      for (const bool fewer : {false, true}) {
        const RandomCase test{bench::appendix_e(), make_task(model, workload)};
        Hexgen2Options options;
        options.fewer_groups = fewer;
        EXPECT_EQ(flow_with(test, options), flow_with(test, exhaustive(fewer)))
            << model << " " << workload.name << " " << fewer;
      }
    }
  }
}

// Given random clusters of up to 8 GPUs; expects exhaustive search's flow in at least 95 of 100, and never more.
TEST(Hexgen2, EqualsExhaustiveSearchOnSmallClusters) {
  int equal = 0, cases = 0;
  for (std::uint64_t seed = 0; cases < effort(16, 80); ++seed) {
    const RandomCase test = random_case(seed, 3, 8);
    Hexgen2Options options;
    options.fewer_groups = seed % 2 == 0;
    if (std::max(2, groups_by_memory(test.task, test.cluster)) > test.cluster.gpus()) continue;
    const std::int64_t best = flow_with(test, exhaustive(options.fewer_groups));
    if (best == 0) continue;
    ++cases;
    const std::int64_t found = flow_with(test, options);
    EXPECT_LE(found, best) << seed;
    equal += found == best ? 1 : 0;
  }
  EXPECT_GE(equal, effort(15, 76));
}

// Given every assignment of 5 GPUs to 3 groups and of phases to groups, GPU by GPU; expects the enumeration over
// interchangeable GPUs to miss none.
TEST(Hexgen2Exhaustive, MissesNoPlacement) {
  for (std::uint64_t seed = 0; seed < effort(2U, 12U); ++seed) {
    const RandomCase test = random_case(seed, 5, 5);
    StrategyTable table(test.cluster, test.task);
    BipartiteFlow flow;
    const std::vector<int> node_of = test.cluster.node_of_each_gpu();
    std::int64_t best = 0;
    for (int code = 0; code < 243; ++code) {
      std::map<int, int> counts[3];
      for (int gpu = 0, rest = code; gpu < 5; ++gpu, rest /= 3) ++counts[rest % 3][node_of[static_cast<std::size_t>(gpu)]];
      if (counts[0].empty() || counts[1].empty() || counts[2].empty()) continue;
      for (int phases = 0; phases < 8; ++phases) {
        Placement placement;
        for (int group = 0; group < 3; ++group) {
          Composition gpus;
          for (const auto& [node, count] : counts[group]) gpus.push_back({node, count});
          placement.push_back(place(table, gpus, (phases >> group & 1) != 0));
        }
        best = std::max(best, second_phase(table, placement, flow));
      }
    }
    EXPECT_EQ(exhaustive_placement(table, 3)->flow, best) << seed;
  }
}

// Given random clusters of 12 to 32 GPUs; expects at least what the baselines find in many tries, and at most the upper bound;
// exhaustive search does not exceed the bound either.
TEST(Hexgen2, IsBetweenItsBaselinesAndTheBound) {
  for (std::uint64_t seed = 0; seed < effort(2U, 6U); ++seed) {
    const RandomCase test = random_case(seed + 100, 12, 32);
    const auto found = hexgen2_schedule(test.cluster, test.task, 1, {});
    ASSERT_TRUE(found.ok()) << found.error().message;
    for (const Hexgen2Search search : {Hexgen2Search::kGenetic, Hexgen2Search::kRandomSwaps}) {
      Hexgen2Options options;
      options.search = search;
      options.chains = 1;
      options.idle = 500;
      EXPECT_GE(found->flow, flow_with(test, options)) << seed << " " << to_string(search);
    }
    const auto bound = flow_bound(*found->table, found->max_groups);
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    EXPECT_LE(static_cast<double>(found->flow) / kFlowUnitsPerRequest, *bound * (1 + 1e-6)) << seed;
    EXPECT_GE(found->flow, found->first_flow);
  }
  for (std::uint64_t seed = 0; seed < effort(12U, 60U); ++seed) {
    const RandomCase test = random_case(seed, 4, 7);
    const auto best = hexgen2_schedule(test.cluster, test.task, 1, {}, exhaustive(true));
    if (!best.ok()) continue;
    EXPECT_LE(static_cast<double>(best->flow) / kFlowUnitsPerRequest, *flow_bound(*best->table, best->max_groups) * (1 + 1e-6));
  }
}

// Given one seed and step budget; expects the same placement with one core and with several, marked as stopped if the budget
// ended the search.
TEST(Hexgen2, IsTheSamePlacementOnAnyNumberOfCores) {
  const RandomCase test = random_case(7, 20, 24);
  Hexgen2Options options;
  options.chains = 3;
  cli::ThreadExecutor threads;
  search::Effort alone, together;
  alone.max_iterations = together.max_iterations = 30'000;
  together.executor = &threads;
  const auto a = hexgen2_schedule(test.cluster, test.task, 5, alone, options);
  const auto b = hexgen2_schedule(test.cluster, test.task, 5, together, options);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->flow, b->flow);
  EXPECT_EQ(a->steps, b->steps);
  ASSERT_EQ(a->groups.size(), b->groups.size());
  for (std::size_t i = 0; i < a->groups.size(); ++i) {
    EXPECT_EQ(a->groups[i].gpus, b->groups[i].gpus);
    EXPECT_EQ(a->groups[i].prefill, b->groups[i].prefill);
  }
  EXPECT_TRUE(a->stopped);
}

// Given a plan; expects each GPU in at most one stage, stages on one node, all layers, and a flow that exceeds no group's
// capacity, adds up to the plan's, and whose shares add up to one.
TEST(Hexgen2Plan, IsWhole) {
  OwnedClusterProblem owned = make_cluster_problem(bench::paper_setting(1), "llama2-70b", 1155, 211, 5);
  const auto plan = hexgen2_plan(owned.problem, {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->holds);
  const std::vector<int> node_of = owned.problem.cluster->node_of_each_gpu();
  std::set<int> used;
  for (const planner::Chain& chain : plan->deployment.chains) {
    int layers = 0;
    for (const planner::Hop& hop : chain.hops) {
      layers += hop.layers;
      for (const int gpu : hop.gpus) {
        EXPECT_TRUE(used.insert(gpu).second) << gpu;
        EXPECT_EQ(node_of[static_cast<std::size_t>(gpu)], node_of[static_cast<std::size_t>(hop.gpus.front())]);
      }
    }
    EXPECT_EQ(layers, 80);
  }
  EXPECT_EQ(static_cast<int>(used.size()), plan->gpus);
  std::vector<double> through(plan->deployment.chains.size(), 0);
  double sum = 0, shares = 0;
  for (const planner::PairShare& edge : plan->deployment.pairs) {
    EXPECT_EQ(plan->deployment.chains[static_cast<std::size_t>(edge.from)].role, dispatch::Role::kPrefill);
    EXPECT_EQ(plan->deployment.chains[static_cast<std::size_t>(edge.to)].role, dispatch::Role::kDecode);
    EXPECT_LE(edge.requests_per_s, edge.capacity_requests_per_s);
    through[static_cast<std::size_t>(edge.from)] += edge.requests_per_s;
    through[static_cast<std::size_t>(edge.to)] += edge.requests_per_s;
    sum += edge.requests_per_s;
    shares += edge.share;
  }
  for (std::size_t i = 0; i < through.size(); ++i)
    EXPECT_LE(through[i], plan->deployment.chains[i].requests_per_s * (1 + 1e-9));
  EXPECT_NEAR(sum, plan->predicted.capacity_requests_per_s, 1e-6);
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_GT(plan->cost_per_hour, 0);
}

// Given a rate that the cluster cannot serve, a model that fits nowhere, a cluster with room for one copy, a network without
// links and invalid options; expects messages with what is missing.
TEST(Hexgen2Plan, SaysWhatIsMissing) {
  OwnedClusterProblem owned = make_cluster_problem(bench::appendix_e(), "llama2-70b", 1155, 211, 1e6);
  const auto short_of = hexgen2_plan(owned.problem, {});
  ASSERT_TRUE(short_of.ok());
  EXPECT_FALSE(short_of->holds);
  EXPECT_THAT(short_of->reasons, testing::Contains(HasSubstr("fewer than the required 1e+06")));
  owned = make_cluster_problem(bench::cluster_of({{"l40", 2}}), "llama2-70b", 1155, 211, 1);
  auto error = hexgen2_plan(owned.problem, {}).error();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("layers of 80 that fit: l40-0 (2 x l40)"));
  EXPECT_THAT(error.message, HasSubstr("GB, is missing"));
  EXPECT_THAT(hexgen_plan(owned.problem, {}).error().message, HasSubstr("a group needs all of them"));
  owned = make_cluster_problem(bench::cluster_of({{"a100-80gb", 2}}), "llama2-70b", 1155, 211, 1);
  EXPECT_THAT(hexgen2_plan(owned.problem, {}).error().message, HasSubstr("two groups, one for each phase, need all of them"));
  EXPECT_TRUE(hexgen_plan(owned.problem, {}).ok());
  GpuCluster apart = bench::cluster_of({{"a100-80gb", 2}, {"a100-80gb", 2}});
  apart.between.clear();
  apart.default_link = {};
  owned = make_cluster_problem(apart, "llama2-70b", 1155, 211, 1);
  EXPECT_THAT(hexgen2_plan(owned.problem, {}).error().message, HasSubstr("memory is sufficient, but"));
  Hexgen2Options options;
  options.groups = 99;
  EXPECT_THAT(hexgen2_plan(owned.problem, {}, options).error().message,
              HasSubstr("groups: must be from 2 to 4, or 0 to compute it from memory (got 99)"));
  search::Effort stopped;
  stopped.stop = [] { return true; };
  EXPECT_EQ(hexgen2_plan(owned.problem, stopped).error().code, ErrorCode::kCancelled);
}

// Given one kind of GPU in one machine; expects HexGen to find the best of all even groups, and the sum of its groups.
TEST(Hexgen, FindsTheBestEvenGroups) {
  OwnedClusterProblem owned = make_cluster_problem(bench::paper_setting(0), "opt-30b", 1155, 211, 1);
  const auto plan = hexgen_plan(owned.problem, {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const InferenceTask task = task_of(owned.problem, 0.9).value();
  StrategyTable table(*owned.problem.cluster, task, Service::kUnified);
  double best = 0;
  for (int gpus = 1; gpus <= 8; ++gpus) {
    best = std::max(best, (8 / gpus) * table.of({{0, gpus}}).strategies->unified.capacity_requests_per_s);
  }
  EXPECT_GE(plan->predicted.capacity_requests_per_s, best * (1 - 1e-6));
  double sum = 0;
  for (const planner::Chain& chain : plan->deployment.chains) {
    EXPECT_EQ(chain.role, dispatch::Role::kUnified);
    sum += chain.requests_per_s;
  }
  EXPECT_NEAR(sum, plan->predicted.capacity_requests_per_s, 1e-9);
}

}  // namespace
}  // namespace windlass::hetero
