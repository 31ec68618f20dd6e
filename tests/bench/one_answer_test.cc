// One question has one answer: `windlass plan`, the controller and `auto` for random services, and the simulator's judgement.
#include "tests/bench/offers/one_answer.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace windlass::bench {
namespace {

constexpr std::uint64_t kServices = 5;  // of a case
constexpr double kSame = 1e-6;          // relative, between equal costs
constexpr double kByChance = 0.01;      // of a simulated attainment, against what the objective asks for

// By the first of kServices seeds. Cases run side by side.
class OneAnswers : public ::testing::TestWithParam<std::uint64_t> {};

// Given random services on the whole catalog; expects the same pools and cost from `windlass plan` and from a controller
// that begins on closed forms, the cost of `auto` for services that may run anything, and an attained objective in a simulation
// with another seed.
TEST_P(OneAnswers, OfPlanControllerAndSimulatorAgree) {
  int confirmed = 0, cheaper = 0;
  for (std::uint64_t seed = GetParam(); seed < GetParam() + kServices; ++seed) {
    SCOPED_TRACE(seed);
    const planner::Snapshot snapshot = random_service(seed);
    const OneAnswer answer = one_answer(snapshot);
    EXPECT_EQ(answer.preview, answer.controller);
    EXPECT_NEAR(answer.preview_cost_per_hour, answer.controller_cost_per_hour, kSame * answer.preview_cost_per_hour);
    if (!answer.confirmed) continue;
    ++confirmed;
    cheaper += answer.preview_cost_per_hour < answer.closed_cost_per_hour * (1 - kSame) ? 1 : 0;
    if (snapshot.services.front().scaling.strategy == planner::Family::kAuto) {
      ASSERT_TRUE(answer.auto_cost_per_hour);
      EXPECT_NEAR(answer.preview_cost_per_hour, *answer.auto_cost_per_hour, kSame * *answer.auto_cost_per_hour);
    }
    ASSERT_TRUE(answer.attainment);
    EXPECT_GE(*answer.attainment, answer.asked - kByChance);
  }
  EXPECT_GE(confirmed, 3);
  EXPECT_GE(cheaper, 1) << "the strategies are not worth asking";
}

INSTANTIATE_TEST_SUITE_P(TwentyServices, OneAnswers, ::testing::Range<std::uint64_t>(1, 21, kServices));

}  // namespace
}  // namespace windlass::bench
