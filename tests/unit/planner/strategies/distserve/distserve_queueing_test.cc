// Tests DistServe's closed forms against the simulator: Eq. 1 to 3, the tail of the wait, L_m, and the screens' estimates and
// ceilings.
#include "planner/strategies/distserve/distserve_queueing.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/trial.h"
#include "planner/strategies/distserve/distserve_units.h"
#include "tests/unit/planner/strategies/core/fixtures.h"

namespace windlass::search {
namespace {

// A prefill of `fixed_s` plus `per_token_s` per token, in equal stages.
class Line final : public planner::IterationModel {
 public:
  Line(double fixed_s, double per_token_s, int stages) : fixed_s_(fixed_s), per_token_s_(per_token_s), stages_(stages) {}
  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override {
    return fixed_s_ + per_token_s_ * batch.prefill_tokens + 1e-4 * batch.decode_sequences + 1e-7 * batch.decode_context_tokens;
  }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch&) const override { return planner::Coverage::kMeasured; }
  [[nodiscard]] double kv_capacity_tokens() const override { return 1e6; }
  [[nodiscard]] int pipeline_stages() const override { return stages_; }

 private:
  double fixed_s_, per_token_s_;
  int stages_;
};

// One kind with this model and prompts of these lengths.
OwnedProblem problem_of(std::shared_ptr<const planner::IterationModel> model, workload::TokenDistribution input,
                        workload::TokenDistribution output = workload::FixedTokens{1}) {
  ProblemSpec spec;
  spec.accelerators = {"a100-80gb"};
  spec.tensor_parallel = {1};
  spec.input = input;
  spec.output = output;
  OwnedProblem owned = make_problem(spec);
  owned.problem.kinds.front().pipeline_stages = model->pipeline_stages();
  owned.problem.kinds.front().kv_capacity_tokens = model->kv_capacity_tokens();
  owned.problem.kinds.front().model = std::move(model);
  return owned;
}

Deployment prefill_alone(const Problem& problem, int batch_tokens) {
  planner::EngineSettings engine = problem.engine;
  engine.max_batch_tokens = batch_tokens;
  return unified(problem, 0, engine, 1);
}

// Eq. 2 and Eq. 3 as written in the paper, with D of one device.
double eq2(double r, double d) { return d + r * d * d / (4 * (2 - r * d)); }
double eq3(double r, double d, double k) { return d / k + r * d * d / (2 * k * (k - r * d)); }

// Given equal prompts that fill a batch, Poisson arrivals, and one device, two stages, or a speed-up of 1.6; expects the
// simulator's mean TTFT within 4 % of Eq. 1, 2 and 3 at utilisations from 0.2 to 0.8, and the general form to equal each of
// them.
TEST(DistServeQueueing, MeansAreThoseOfTheSimulator) {
  constexpr double kD = 0.1, kK = 1.6;
  constexpr int kTokens = 512;
  const auto simulated = [&](double whole_s, int stages, double rate) {
    const OwnedProblem owned = problem_of(std::make_shared<Line>(0, whole_s / kTokens, stages), workload::FixedTokens{kTokens});
    return try_out(owned.problem, prefill_alone(owned.problem, kTokens), {rate, 60'000, 5})->ttft.mean_s;
  };
  for (const double rate : {2.0, 5.0, 8.0}) {
    EXPECT_NEAR(simulated(kD, 1, rate), md1_mean_ttft_s(rate, kD, kD), 0.04 * kD) << rate;
    EXPECT_NEAR(md1_mean_ttft_s(rate, kD, kD / 2), eq2(rate, kD), 1e-12);
    EXPECT_NEAR(md1_mean_ttft_s(rate, kD / kK, kD / kK), eq3(rate, kD, kK), 1e-12);
    EXPECT_NEAR(simulated(kD, 2, rate), eq2(rate, kD), 0.04 * kD) << rate;
    EXPECT_NEAR(simulated(kD / kK, 1, rate), eq3(rate, kD, kK), 0.04 * kD) << rate;
  }
  // Tensor parallelism is better at low rates, pipelines at high ones (Fig. 4).
  EXPECT_LT(eq3(2, kD, kK), eq2(2, kD));
  EXPECT_GT(eq3(14, kD, kK), eq2(14, kD));
  EXPECT_TRUE(std::isinf(md1_mean_ttft_s(10, kD, kD)));
}

// Given prompts of one length and of many; expects the share of requests that wait longer than several times to match the tail,
// to within a few percentage points.
TEST(DistServeQueueing, TailsAreThoseOfTheSimulator) {
  for (const bool equal : {true, false}) {
    const auto model = std::make_shared<Line>(0, 1e-4, 1);
    OwnedProblem owned =
        equal ? problem_of(model, workload::FixedTokens{1000}) : problem_of(model, workload::UniformTokens{100, 1900});
    std::vector<double> stage_s;
    for (int tokens = equal ? 1000 : 100; tokens <= (equal ? 1000 : 1900); tokens += 20) stage_s.push_back(tokens * 1e-4);
    for (const double rate : {4.0, 8.0}) {
      const WaitTail tail(rate, stage_s);
      for (const double wait_s : {0.05, 0.2, 0.6}) {
        // A single token: the scheduling delay is the wait.
        owned.problem.objectives = {};
        owned.problem.objectives.limits = {{Metric::kSchedulingDelay, 95, wait_s}};
        const auto run = try_out(owned.problem, prefill_alone(owned.problem, 1), {rate, 40'000, 3});
        ASSERT_TRUE(run.ok());
        const double p95_s = run->scheduling_delay.p95_s;
        EXPECT_NEAR(tail.exceeds(p95_s), 0.05, 0.02) << equal << " " << rate;
      }
    }
    EXPECT_FALSE(WaitTail(20, stage_s).stable());
    EXPECT_EQ(WaitTail(20, stage_s).exceeds(100), 1);
  }
}

// Given linear models with a large and no fixed part; expects L_m to grow with the fixed part, and to reach the requested
// share.
TEST(DistServeQueueing, CriticalPromptLength) {
  const Line heavy(0.02, 1e-4, 1), light(0, 1e-4, 1);
  const int tokens = critical_prompt_tokens(heavy, 0.85, 8192);
  const auto rate = [&](int at) { return at / heavy.iteration_s(planner::prefill_batch(1, at)); };
  EXPECT_GE(rate(tokens), 0.85 * rate(8192) * 0.999);
  EXPECT_LT(rate(tokens - 16), 0.85 * rate(8192) * 1.001);
  EXPECT_EQ(tokens % 16, 0);
  EXPECT_EQ(critical_prompt_tokens(light, 0.85, 8192), 16);
  EXPECT_LT(critical_prompt_tokens(heavy, 0.5, 8192), tokens);
}

// Given Llama 3.1 8B on one and two A100s in tensor and pipeline parallelism; expects the screens' estimates within a factor of
// 2 of the simulated goodputs, and no goodput more than a tenth above a ceiling (even long runs may end before an overload
// shows).
TEST(DistServeQueueing, ScreensAgreeWithTheSimulator) {
  ProblemSpec spec;
  spec.accelerators = {"a100-80gb"};
  spec.tensor_parallel = {1, 2};
  spec.pipeline_stages = {1, 2};
  for (const auto& [ttft_s, tpot_s] : {std::pair(0.5, 0.03), {0.2, 0.02}, {2.0, 0.05}}) {
    spec.ttft_s = ttft_s;
    spec.tpot_s = tpot_s;
    const OwnedProblem owned = make_problem(spec);
    const DistServeUnits units(owned.problem, {}, 4000);
    for (const bool prefill : {true, false}) {
      for (const Unit& unit : prefill ? units.prefill() : units.decode()) {
        CapacitySearch search;
        search.requests = prefill ? 3000 : 12'000;
        search.first_guess_per_s = unit.estimate_per_s;
        search.figures = false;
        const auto found = capacity_of(*unit.problem, unit.deployment, search);
        ASSERT_TRUE(found.ok());
        const std::string who = describe(unit.deployment) + (prefill ? " prefill" : " decode");
        EXPECT_LT(found->requests_per_s, 1.1 * unit.ceiling_per_s) << who << " " << ttft_s << " " << tpot_s;
        EXPECT_GT(found->requests_per_s, unit.estimate_per_s / 2) << who << " " << ttft_s << " " << tpot_s;
        EXPECT_LT(found->requests_per_s, unit.estimate_per_s * 2) << who << " " << ttft_s << " " << tpot_s;
      }
    }
  }
}

}  // namespace
}  // namespace windlass::search
