// Tests problems: what is rejected, and how the kinds of workers are made.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/trial.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

using testing::HasSubstr;

// Given incomplete or invalid problems; expects an error with the field, the value and the rule.
TEST(Problem, NamesWhatIsWrong) {
  const OwnedProblem owned = make_problem();
  ASSERT_TRUE(validate(owned.problem).ok());
  const auto refused = [&](const auto& spoil) {
    Problem problem = owned.problem;
    spoil(problem);
    const auto checked = validate(problem);
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_THAT(refused([](Problem& p) { p.requests_per_s = 0; }),
              HasSubstr("requestsPerSecond: must be a number above 0 (got 0)"));
  EXPECT_THAT(refused([](Problem& p) { p.objectives.both.reset(); }), HasSubstr("slo: must have at least one objective"));
  EXPECT_THAT(refused([](Problem& p) { p.objectives.attainment = 1; }),
              HasSubstr("slo.percentile: must be above 0 and below 100 (got 100)"));
  EXPECT_THAT(refused([](Problem& p) {
                p.objectives.limits = {{Metric::kTtft, 80, 1}};
              }),
              HasSubstr("percentile: must be 50, 90, 95 or 99 (got 80)"));
  EXPECT_THAT(refused([](Problem& p) {
                p.objectives.limits = {{Metric::kE2eSlowdown, 90, 2}};
              }),
              HasSubstr("slowdownReference: must be set"));
  EXPECT_THAT(refused([](Problem& p) { p.requests = nullptr; }), HasSubstr("workload: must be set"));
}

// Given a model of 70 billion weights and single GPUs of 80 GB; expects no kind, and an error with why each was unfit.
TEST(Problem, SaysWhyNothingFits) {
  ProblemSpec spec;
  spec.model = "llama3.1-70b";
  spec.tensor_parallel = {1};
  const OwnedProblem owned = make_problem(spec);
  const auto checked = validate(owned.problem);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(checked.error().message, HasSubstr("a100-80gb, TP 1"));
  EXPECT_THAT(checked.error().message, HasSubstr("h100-80gb, TP 1"));
}

// Given degrees that do not divide the heads evenly and more stages than layers; expects those kinds among the unfit ones, the
// others in order of their GPUs.
TEST(WorkerKinds, AreOrderedAndChecked) {
  ProblemSpec spec;
  spec.accelerators = {"h100-80gb"};
  spec.tensor_parallel = {4, 3, 1, 2};
  spec.pipeline_stages = {2, 1, 64};
  const OwnedProblem owned = make_problem(spec);
  std::vector<std::pair<int, int>> made;
  for (const WorkerKind& kind : owned.problem.kinds) made.emplace_back(kind.tensor_parallel, kind.pipeline_stages);
  EXPECT_THAT(made, testing::ElementsAre(std::pair(1, 1), std::pair(1, 2), std::pair(2, 1), std::pair(2, 2), std::pair(4, 1),
                                         std::pair(4, 2)));
  EXPECT_EQ(std::count_if(owned.problem.unfit.begin(), owned.problem.unfit.end(),
                          [](const UnfitKind& kind) { return kind.tensor_parallel == 3; }),
            3);
}

// Given a deployment of two pools; expects its GPUs, cost and power to be the sums, limited by the available room.
TEST(Deployment, AddsUp) {
  OwnedProblem owned = make_problem();
  Problem& problem = owned.problem;
  Deployment deployment;
  deployment.pools = {problem.pool(0, dispatch::Role::kPrefill, 2),
                      problem.pool(4, dispatch::Role::kDecode, 3)};  // a100 TP 1, h100 TP 2
  EXPECT_EQ(gpus_of(deployment), 2 * 1 + 3 * 2);
  const double a100 = problem.accelerators[0].spec.price_per_hour, h100 = problem.accelerators[1].spec.price_per_hour;
  EXPECT_NEAR(cost_per_hour(problem, deployment), 2 * a100 + 6 * h100, 1e-9);
  EXPECT_EQ(describe(deployment), "prefill 2 x a100-80gb-1 + decode 3 x h100-80gb-2");
  EXPECT_TRUE(check_room(problem, deployment).ok());
  problem.accelerators[1].gpus = 5;
  const auto room = check_room(problem, deployment);
  ASSERT_FALSE(room.ok());
  EXPECT_THAT(room.error().message, HasSubstr("needs 6 GPUs of h100-80gb, but only 5 may be used"));
}

// Given decode workers with measured transfers; expects the simulated service to use their path instead of the network's, on
// one node and between two; of two kinds the slower one, ignoring a prefill worker's; and requests that take correspondingly
// longer.
TEST(Deployment, UsesMeasuredTransfers) {
  OwnedProblem owned = make_problem();
  Problem& problem = owned.problem;
  Deployment deployment;
  deployment.pools = {problem.pool(3, dispatch::Role::kPrefill), problem.pool(4, dispatch::Role::kDecode)};
  const auto path = [&] { return serving_service(problem, deployment)->service.link.path; };
  const auto end_s = [&] { return try_out(problem, deployment, {1, 200, 1}).value().e2e.mean_s; };
  problem.kinds[3].within_node = problem.kinds[3].between_nodes = planner::KvTransferPath{1, 1, 0, 0};
  EXPECT_EQ(path(), problem.between_nodes);
  const double by_network_s = end_s();
  const planner::KvTransferPath measured{0.2e9, 2e-3, 0, 0};
  problem.kinds[4].between_nodes = measured;
  EXPECT_EQ(path(), measured);
  EXPECT_GT(end_s(), by_network_s + 0.2);  // about 512 tokens of 128 KiB
  deployment.pairs_share_a_node = true;
  EXPECT_EQ(path(), problem.within_node);
  problem.kinds[4].within_node = planner::KvTransferPath{9e9, 1e-3, 0, 0};
  deployment.pools.push_back(problem.pool(0, dispatch::Role::kDecode));
  EXPECT_EQ(path(), (planner::KvTransferPath{9e9, 1e-3, 0, 0}));
  problem.kinds[0].within_node = planner::KvTransferPath{5e9, 1e-5, 0, 0};
  EXPECT_EQ(path(), (planner::KvTransferPath{5e9, 1e-3, 0, 0}));
}

}  // namespace
}  // namespace windlass::search
