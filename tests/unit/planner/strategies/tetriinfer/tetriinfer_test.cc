// Tests TetriInfer's plan against brute force over counts and policies, and its chunks and prefill instances.
#include "planner/strategies/tetriinfer/tetriinfer.h"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/strategies/core/worker_models.h"
#include "tests/unit/planner/strategies/core/fixtures.h"
#include "tests/unit/planner/whatif/split_trials.h"

namespace windlass::search {
namespace {

using testing::HasSubstr;

ProblemSpec long_prompts(double requests_per_s) {
  ProblemSpec spec;
  spec.tensor_parallel = {1};
  spec.requests_per_s = requests_per_s;
  spec.ttft_s = 0.8;
  spec.input = workload::LogNormalTokens{2000, 0.8, 4096};
  spec.output = workload::LogNormalTokens{300, 0.8, 1024};
  return spec;
}

TetriInferOptions quick_tetriinfer() {
  TetriInferOptions options;
  options.search.seeds = 2;
  options.search.trial_s = 15;
  return options;
}

// Given small problems; expects the plan to cost no more than the cheapest of the grid under the paper's policies, and with a
// choice of policies no more than that, for all pairs of kinds.
TEST(TetriInfer, CostsAsLittleAsTheGrid) {
  constexpr int kMost = 6;
  int large = 0;
  for (const double rate : {20.0, 45.0, 70.0}) {
    const OwnedProblem owned = make_problem(long_prompts(rate));
    TetriInferOptions options = quick_tetriinfer();
    options.choose_knobs = false;
    const auto fixed = tetriinfer_plan(owned.problem, {}, options);
    ASSERT_TRUE(fixed.ok()) << fixed.error().message;
    ASSERT_TRUE(fixed->holds);
    double least = std::numeric_limits<double>::infinity();
    for (int kinds = 0; kinds < 4; ++kinds) {
      const SplitDesign design = tetriinfer_design(owned.problem, kinds / 2, kinds % 2, options.knobs, options);
      for (int prefill = 1; prefill <= kMost; ++prefill) {
        for (int decode = 1; decode <= kMost; ++decode) {
          const Deployment deployment = design.deploy({prefill, decode});
          const double cost = cost_per_hour(owned.problem, deployment);
          if (cost < least && holds_in_all(owned.problem, deployment, rate, options.search)) least = cost;
        }
      }
    }
    EXPECT_NEAR(fixed->cost_per_hour, least, 1e-9) << rate << " requests/s: " << describe(fixed->deployment);
    options.choose_knobs = true;
    const auto chosen = tetriinfer_plan(owned.problem, {}, options);
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    EXPECT_TRUE(chosen->holds);
    EXPECT_LE(chosen->cost_per_hour, least + 1e-9);
    EXPECT_TRUE(holds_in_all(owned.problem, chosen->deployment, rate, options.search));
    large += chosen->deployment.pools[0].workers + chosen->deployment.pools[1].workers > 4 ? 1 : 0;
  }
  EXPECT_GE(large, 1);
}

// Given the plan; expects the paper's policies in it: chunked prefill, a prediction where it is used, flips.
TEST(TetriInfer, SchedulesAsThePaperHasIt) {
  const OwnedProblem owned = make_problem(long_prompts(20));
  TetriInferOptions options = quick_tetriinfer();
  options.choose_knobs = false;
  const auto plan = tetriinfer_plan(owned.problem, {}, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const Deployment& deployment = plan->deployment;
  ASSERT_EQ(deployment.pools.size(), 2u);
  const planner::EngineSettings& prefill = deployment.pools[0].spec.engine;
  EXPECT_EQ(prefill.batching, planner::Batching::kSarathi);
  EXPECT_EQ(prefill.prompt_order, planner::PromptOrder::kShortestFirst);
  EXPECT_EQ(prefill.prompt_order_window, 16);
  EXPECT_EQ(prefill.max_batch_tokens, saturating_chunk(*kind_of(owned.problem, deployment.pools[0].spec).model, 0.9));
  EXPECT_EQ(deployment.pools[1].spec.engine.admission, planner::DecodeAdmission::kReserveDynamic);
  EXPECT_EQ(deployment.dispatch.decode_choice, dispatch::DecodeChoice::kTwoChoice);
  EXPECT_FALSE(deployment.dispatch.policy.has_value());
  ASSERT_TRUE(deployment.dispatch.prediction && deployment.dispatch.flip);
  EXPECT_EQ(deployment.dispatch.prediction->bucket_tokens, 200);
  // Without a policy that uses it, the predictor does not run.
  const SplitDesign greedy = tetriinfer_design(
      owned.problem, 0, 0,
      {planner::PromptOrder::kArrival, planner::DecodeAdmission::kGreedy, dispatch::DecodeChoice::kAtArrival}, options);
  const Deployment plain = greedy.deploy({1, 1});
  EXPECT_FALSE(plain.dispatch.prediction.has_value());
  const auto batch = planner::prefill_batch(1, plain.pools[0].spec.engine.max_batch_tokens);
  EXPECT_EQ(model_of(owned.problem, plain.pools[0].spec)->iteration_s(batch), owned.problem.kinds[0].model->iteration_s(batch));
}

// Given a prefill instance; expects part of a chunk to take as long as a whole one, a tenth longer than without the predictor,
// and decodes to be slowed by the predictor only.
TEST(TetriInfer, PadsTheLastChunk) {
  const OwnedProblem owned = make_problem();
  const auto& model = owned.problem.kinds[0].model;
  WorkerSpec spec = owned.problem.pool(0).spec;
  spec.engine.max_batch_tokens = 512;
  spec.engine.pads_chunks = spec.length_predictor = true;
  const auto instance = model_of(owned.problem, spec);
  const auto near = [](double a, double b) { return std::abs(a / b - 1) < 0.05; };  // it attends to less
  EXPECT_PRED2(near, instance->iteration_s(planner::prefill_batch(1, 40)),
               1.1 * model->iteration_s(planner::prefill_batch(1, 512)));
  EXPECT_EQ(instance->iteration_s(planner::prefill_batch(1, 512)), 1.1 * model->iteration_s(planner::prefill_batch(1, 512)));
  EXPECT_EQ(instance->iteration_s(planner::decode_batch(4, 100)), 1.1 * model->iteration_s(planner::decode_batch(4, 100)));
}

// Given OPT-13B on V100; expects the 512 tokens of the paper's testbed; on a chip with more compute per bandwidth, or for a
// larger share of the throughput, no smaller chunk.
TEST(TetriInfer, ChunksSaturateTheAccelerator) {
  ProblemSpec spec;
  spec.model = "opt-13b";
  spec.accelerators = {"v100-32gb", "h100-80gb"};
  spec.tensor_parallel = {2};
  const OwnedProblem owned = make_problem(spec);
  ASSERT_EQ(owned.problem.kinds.size(), 2u);
  const auto& v100 = *owned.problem.kinds[0].model;
  EXPECT_EQ(saturating_chunk(v100, 0.9), 512);
  EXPECT_GE(saturating_chunk(*owned.problem.kinds[1].model, 0.9), 512);
  EXPECT_GE(saturating_chunk(v100, 0.99), saturating_chunk(v100, 0.9));
}

// Given one and three threads, with and without a step budget; expects identical plans.
TEST(TetriInfer, IsTheSameOnAnyNumberOfCores) {
  const OwnedProblem owned = make_problem(long_prompts(30));
  for (const std::int64_t budget : {std::numeric_limits<std::int64_t>::max(), std::int64_t{150'000}}) {
    std::vector<Offer> plans;
    for (const int threads : {1, 3}) {
      cli::ThreadExecutor executor(threads);
      Effort effort;
      effort.executor = &executor;
      effort.max_iterations = budget;
      auto plan = tetriinfer_plan(owned.problem, effort, quick_tetriinfer());
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      plans.push_back(std::move(plan).value());
    }
    EXPECT_EQ(plans[0].reasons, plans[1].reasons);
    EXPECT_EQ(plans[0].predicted.ttft_s, plans[1].predicted.ttft_s);
    EXPECT_EQ(plans[0].iterations, plans[1].iterations);
    EXPECT_EQ(plans[0].trials, plans[1].trials);
    EXPECT_EQ(plans[0].stopped, plans[1].stopped);
  }
}

// Given looser objectives; expects a plan that costs no more. Given more room; expects one that serves no less.
TEST(TetriInfer, IsMonotone) {
  double before = std::numeric_limits<double>::infinity();
  for (const double factor : {1.0, 1.5, 3.0}) {
    ProblemSpec spec = long_prompts(40);
    spec.ttft_s = 0.5 * factor;
    spec.tpot_s = 0.02 * factor;
    const OwnedProblem owned = make_problem(spec);
    const auto plan = tetriinfer_plan(owned.problem, {}, quick_tetriinfer());
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_TRUE(plan->holds);
    EXPECT_LE(plan->cost_per_hour, 1.02 * before);
    before = plan->cost_per_hour;
  }
  double capacity = 0;
  for (const int gpus : {3, 4, 6}) {
    OwnedProblem owned = make_problem(long_prompts(10));
    owned.problem.goal = Goal::kThroughput;
    owned.problem.max_gpus = gpus;
    TetriInferOptions options = quick_tetriinfer();
    options.kinds = {1};
    const auto plan = tetriinfer_plan(owned.problem, {}, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_GE(plan->predicted.capacity_requests_per_s, 0.98 * capacity) << gpus;
    capacity = plan->predicted.capacity_requests_per_s;
  }
}

// Given seeds that the search has not seen; expects the predicted attainment, within its interval.
TEST(TetriInfer, KeepsWhatItPromises) {
  const OwnedProblem owned = make_problem(long_prompts(30));
  const auto plan = tetriinfer_plan(owned.problem, {}, quick_tetriinfer());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_TRUE(plan->holds);
  double inside = 0, requests = 0;
  for (std::uint64_t seed = 100; seed < 105; ++seed) {
    const auto run = try_out(owned.problem, plan->deployment, {30, 500, seed});
    ASSERT_TRUE(run.ok());
    inside += run->attainment * static_cast<double>(run->requests);
    requests += static_cast<double>(run->requests);
  }
  EXPECT_GE(inside / requests, plan->predicted.attainment_low - 0.02);
}

// Given invalid options; expects the field, the value and the rule.
TEST(TetriInfer, RefusesBadInput) {
  OwnedProblem owned = make_problem(long_prompts(10));
  const auto refused = [&](const auto& spoil) {
    TetriInferOptions options = quick_tetriinfer();
    spoil(options);
    const auto plan = tetriinfer_plan(owned.problem, {}, options);
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_THAT(refused([](TetriInferOptions& o) { o.kinds = {-1}; }), HasSubstr("kinds: must be from 0 to 1 (got -1)"));
  EXPECT_THAT(refused([](TetriInferOptions& o) { o.search.seeds = 0; }), HasSubstr("seeds: must be at least 1 (got 0)"));
  EXPECT_THAT(refused([](TetriInferOptions& o) { o.prefill_sched_batch = 0; }),
              HasSubstr("prefillSchedBatch: must be at least 1 (got 0)"));
  EXPECT_THAT(refused([](TetriInferOptions& o) { o.chunk_tokens = 0; }), HasSubstr("chunkTokens: must be at least 1 (got 0)"));
  EXPECT_THAT(refused([](TetriInferOptions& o) { o.saturated_share = 2; }),
              HasSubstr("saturatedShare: must be above 0 and at most 1 (got 2)"));
  EXPECT_THAT(refused([](TetriInferOptions& o) { o.prediction.accuracy = 1.5; }),
              HasSubstr("prediction.accuracy: must be a share from 0 to 1 (got 1.5)"));
  owned.problem.predictor_slowdown = 0.5;
  EXPECT_THAT(refused([](TetriInferOptions&) {}), HasSubstr("predictorSlowdown: must be at least 1 (got 0.5)"));
}

}  // namespace
}  // namespace windlass::search
