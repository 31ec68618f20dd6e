// Tests the combined answer of the strategies for split phases about a service.
#include "planner/whatif/split_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/perf/linear_model.h"
#include "planner/policy/make_plan.h"
#include "planner/whatif/question.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::search {
namespace {

using planner::testing::a100;
using planner::testing::chat_service;
using planner::testing::h100;
using planner::testing::with_gpus;
using ::testing::HasSubstr;

planner::Service service() {
  planner::Service out = chat_service();
  out.scaling.strategy = planner::Family::kDisaggregated;
  out.workload.requests_per_s = 8;
  out.accelerators = {{"h100", std::nullopt}, {"a100", std::nullopt}};
  return out;
}

const std::vector<planner::AcceleratorState>& classes() {
  static const std::vector<planner::AcceleratorState> kClasses = {with_gpus(h100(), 8), with_gpus(a100(), 8)};
  return kClasses;
}

// Given a service; expects a feasible answer, the same every time and under any limits on the number of workers, with a rate
// per worker of each side; and a plan of the policy with it that serves the assumed load.
TEST(SplitAdvice, SaysWhatAWorkerOfEachPhaseServes) {
  const auto advice = split_advice(service(), classes(), Effort{});
  ASSERT_TRUE(advice.ok()) << advice.error().message;
  ASSERT_TRUE(advice->holds) << advice->why;
  EXPECT_GT(advice->prefill.requests_per_s, 1);
  EXPECT_GT(advice->decode.requests_per_s, 1);
  for (const char* name : {"distserve", "splitwise", "tetriinfer"}) EXPECT_THAT(advice->why, HasSubstr(name));
  planner::Service limited = service();
  limited.scaling.max_cost_per_hour = 1;
  limited.accelerators = {{"h100", 8}, {"a100", 8}};
  EXPECT_EQ(*split_advice(limited, classes(), Effort{}), *advice);

  planner::Snapshot snapshot;
  snapshot.now_s = 1000;
  snapshot.accelerators = classes();
  snapshot.services = {service()};
  snapshot.services[0].split = *advice;
  const auto plan = planner::make_plan(snapshot).services[0];
  EXPECT_EQ(plan.feasible.status, planner::Truth::kTrue) << plan.feasible.message;
  EXPECT_EQ(plan.pools.size(), 2U);
  EXPECT_GE(plan.predicted.requests_per_s, 8);
}

// Given strategy Auto and long prompts that delay many answers; expects a split that costs clearly less than the cheapest whole
// workers, both simulated, and a policy that changes to it from running whole workers. Given short prompts; expects whole
// workers to stay.
TEST(SplitAdvice, AutoComparesWithWholeWorkers) {
  planner::Service either = service();
  either.scaling.strategy = planner::Family::kAuto;
  either.accelerators = {{"h100", std::nullopt}};
  const auto plan_of = [&](double input_tokens, double output_tokens) {
    either.workload = {24, input_tokens, output_tokens};
    either.slo.tpot_s = 0.015;
    const auto advice = split_advice(either, classes(), Effort{});
    EXPECT_TRUE(advice.ok() && advice->holds && advice->whole_cost_per_hour) << advice->why;
    EXPECT_THAT(advice->why, AllOf(HasSubstr("auto"), HasSubstr("whole workers")));
    planner::Snapshot snapshot;
    snapshot.now_s = 10'000;
    snapshot.accelerators = {with_gpus(h100(), 64)};
    snapshot.services = {either};
    planner::Service& running = snapshot.services[0];
    running.split = *advice;
    running.memory.history_since_s = 0;
    planner::testing::observe(running, snapshot.now_s, 24);
    for (int slot = 0; slot < 4; ++slot) {
      running.workers.push_back(planner::testing::ready_worker("h100-1", "h100", 1, slot, snapshot.now_s));
    }
    return std::pair(*advice, planner::make_plan(snapshot).services[0]);
  };
  const auto [long_prompts, split] = plan_of(4000, 100);
  EXPECT_LT(long_prompts.cost_per_hour, 0.8 * *long_prompts.whole_cost_per_hour) << long_prompts.why;
  EXPECT_EQ(split.strategy, planner::Family::kDisaggregated) << long_prompts.why;
  const auto [short_prompts, whole] = plan_of(100, 100);
  EXPECT_GT(short_prompts.cost_per_hour, 0.8 * *short_prompts.whole_cost_per_hour) << short_prompts.why;
  EXPECT_EQ(whole.strategy, planner::Family::kReplicated) << short_prompts.why;
}

// Given an engine that can split the model over two GPUs; expects a problem with workers of one and two GPUs only, and an
// answer with such workers.
TEST(SplitAdvice, WorkersHaveNoMoreGpusThanTheirEngineCanUse) {
  planner::Service bounded = service();
  bounded.max_gpus_per_worker = 2;
  const auto made = question_of(bounded, classes());
  ASSERT_TRUE(made.ok()) << made.error().message;
  int largest = 0;
  for (const WorkerKind& kind : made->problem().kinds) largest = std::max(largest, kind.gpus());
  EXPECT_EQ(largest, 2);
  const auto advice = split_advice(bounded, classes(), Effort{});
  ASSERT_TRUE(advice.ok() && advice->holds) << advice->why;
  EXPECT_LE(std::max(advice->prefill.gpus_per_worker, advice->decode.gpus_per_worker), 2);
}

// Given measured transfers to workers of one kind; expects the problem to use them for that kind only, and, if they are too
// slow for the time per token, an answer with another kind of decode worker.
TEST(SplitAdvice, UsesMeasuredTransfers) {
  planner::Service measured = service();
  const planner::SplitAdvice before = *split_advice(measured, classes(), Effort{});
  ASSERT_TRUE(before.holds) << before.why;
  measured.transfers = {{before.decode.accelerator, before.decode.gpus_per_worker, {1e6, 0.5, 262144, 9}}};
  const auto made = question_of(measured, classes());
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Problem& problem = made->problem();
  for (const WorkerKind& kind : problem.kinds) {
    const bool is_it = problem.spec(kind).name == before.decode.accelerator && kind.gpus() == before.decode.gpus_per_worker;
    const planner::KvTransferPath slow{0.5e6, 0.5, 0, 0};
    EXPECT_EQ(problem.path_to(kind, true), is_it ? slow : problem.within_node);
    EXPECT_EQ(problem.path_to(kind, false), is_it ? slow : problem.between_nodes);
  }
  const planner::SplitAdvice after = *split_advice(measured, classes(), Effort{});
  ASSERT_TRUE(after.holds) << after.why;
  EXPECT_TRUE(after.decode.accelerator != before.decode.accelerator ||
              after.decode.gpus_per_worker != before.decode.gpus_per_worker)
      << after.why;
}

// Given workers measured at three times their data sheet's times; expects a problem with those iteration times, and an answer
// with a lower rate per worker.
TEST(SplitAdvice, UsesMeasuredTimes) {
  planner::Service measured = service();
  measured.accelerators = {{"h100", std::nullopt}};
  const planner::SplitAdvice before = *split_advice(measured, classes(), Effort{});
  ASSERT_TRUE(before.holds) << before.why;
  measured.estimates = {planner::testing::measured(measured, h100(), 1, 3, 3)};
  const auto made = question_of(measured, classes());
  ASSERT_TRUE(made.ok()) << made.error().message;
  for (const WorkerKind& kind : made->problem().kinds) {
    const planner::LinearModel sheet(planner::linear_coefficients(*measured.shape, h100(), kind.gpus()));
    const double decode_s = kind.model->iteration_s(planner::decode_batch(8, 512));
    EXPECT_NEAR(decode_s / sheet.decode_s(8, 512), 3, 0.1) << kind.gpus();
  }
  const planner::SplitAdvice after = *split_advice(measured, classes(), Effort{});
  ASSERT_TRUE(after.holds) << after.why;
  EXPECT_LT(after.prefill.requests_per_s / after.prefill.gpus_per_worker,
            0.6 * before.prefill.requests_per_s / before.prefill.gpus_per_worker);
}

// Given an objective that nothing meets; expects the result of each strategy. Given no class with GPUs, an unknown shape or no
// assumed load; expects an explanation or an answer, and no error. Given a stop; expects Cancelled.
TEST(SplitAdvice, ExplainsWhatCannotBePlanned) {
  planner::Service hopeless = service();
  hopeless.slo.tpot_s = 1e-5;
  const auto none = split_advice(hopeless, classes(), Effort{});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->holds);
  EXPECT_THAT(none->why, HasSubstr("distserve"));

  const auto nowhere = split_advice(service(), {}, Effort{});
  ASSERT_TRUE(nowhere.ok());
  EXPECT_FALSE(nowhere->holds);
  EXPECT_THAT(nowhere->why, HasSubstr("no class"));

  planner::Service shapeless = service();
  shapeless.shape.reset();
  EXPECT_FALSE(split_advice(shapeless, classes(), Effort{})->holds);

  Effort stopped;
  stopped.stop = [] { return true; };
  const auto cancelled = split_advice(service(), classes(), stopped);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

// Given a class that the spec allows but that has no GPUs; expects an answer without it. Given no assumed load; expects an
// answer.
TEST(SplitAdvice, PlansWithTheClassesThatAreThere) {
  planner::Service idle = service();
  idle.workload.requests_per_s = 0;
  const std::vector<planner::AcceleratorState> one = {classes()[1]};
  const auto advice = split_advice(idle, one, Effort{});
  ASSERT_TRUE(advice.ok());
  ASSERT_TRUE(advice->holds) << advice->why;
  EXPECT_EQ(advice->prefill.accelerator, "a100");
  EXPECT_EQ(advice->decode.accelerator, "a100");
}

}  // namespace
}  // namespace windlass::search
