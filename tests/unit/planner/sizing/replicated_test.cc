// Tests of replicated placement: the cheapest accelerator for the demand wins, room comes first, and all candidates are listed.
#include "planner/sizing/replicated.h"

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/sizing/worker_count.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

ReplicatedInput chat_input(double requests_per_s) {
  ReplicatedInput input;
  input.shape = model_shape_by_name("llama3-8b").value();
  input.objective = Objective{1, 0.1, 95};
  input.lengths = Lengths{512, 256};
  input.requests_per_s = requests_per_s;
  input.accelerators = {{testing::h100(), 8, 64}, {testing::a100(), 8, 64}, {testing::l4(), 1, 64}};
  return input;
}

// Given little demand; expects the accelerator whose single worker is cheapest, and all candidates in order of cost.
TEST(Replicated, LittleDemandTakesTheCheapestWorker) {
  const ReplicatedResult result = place_replicated(chat_input(0.1));
  ASSERT_EQ(result.candidates.size(), 3U);
  EXPECT_EQ(result.candidates[0].config.spec.accelerator, "l4");
  EXPECT_EQ(result.candidates[0].workers, 1);
  EXPECT_DOUBLE_EQ(result.candidates[0].cost_per_hour, 0.7);
  EXPECT_LE(result.candidates[1].cost_per_hour, result.candidates[2].cost_per_hour);
}

// Given high demand; expects the accelerator with the lowest total cost, which is not the one with the cheapest worker.
TEST(Replicated, MuchDemandTakesTheCheapestTotal) {
  const ReplicatedResult result = place_replicated(chat_input(200));
  EXPECT_NE(result.candidates[0].config.spec.accelerator, "l4");
  for (const Candidate& candidate : result.candidates) EXPECT_GE(candidate.cost_per_hour, result.candidates[0].cost_per_hour);
}

// Given no room on the cheapest; expects the next one with room. Given room nowhere; expects the cheapest.
TEST(Replicated, RoomComesFirst) {
  ReplicatedInput input = chat_input(0.1);
  input.accelerators[2].available_gpus = 0;
  EXPECT_EQ(place_replicated(input).candidates[0].config.spec.accelerator, "a100");
  for (auto& option : input.accelerators) option.available_gpus = 0;
  EXPECT_EQ(place_replicated(input).candidates[0].config.spec.accelerator, "l4");
}

// Given prices of zero; expects the candidate with the fewest GPUs.
TEST(Replicated, WithoutPricesFewerGpusWin) {
  ReplicatedInput input = chat_input(60);
  for (auto& option : input.accelerators) option.spec.price_per_hour = 0;
  EXPECT_EQ(place_replicated(input).candidates[0].config.spec.accelerator, "h100");
}

// Given an objective that cannot be met; expects no candidate, and the smallest possible objective with its accelerator.
TEST(Replicated, NamesTheSmallestPossibleObjective) {
  ReplicatedInput input = chat_input(1);
  input.objective.tpot_s = 0.0005;
  const ReplicatedResult result = place_replicated(input);
  EXPECT_TRUE(result.candidates.empty());
  EXPECT_EQ(result.smallest_tpot_on, "8 x h100");
  input.objective.tpot_s = result.smallest_tpot_s * 1.000001;
  EXPECT_FALSE(place_replicated(input).candidates.empty());
}

// Given a configuration that was not chosen; expects it by its GPUs, or none if it misses the objective.
TEST(Replicated, GivesAnyFeasibleConfiguration) {
  const ReplicatedInput input = chat_input(10);
  const auto four = replicated_candidate(input, 4);
  ASSERT_TRUE(four.has_value());
  EXPECT_EQ(four->config.spec.gpus(), 4);
  EXPECT_FALSE(replicated_candidate(input, 3).has_value());
}

// Given 300 random demands; expects that no other candidate with room is cheaper than the winner, and that its workers suffice.
TEST(Replicated, WinnerIsCheapestOfAll) {
  Rng rng(41, "demands");
  for (int i = 0; i < 300; ++i) {
    ReplicatedInput input = chat_input(rng.uniform(0.01, 300));
    input.lengths = Lengths{rng.uniform(16, 2000), rng.uniform(2, 800)};
    for (auto& option : input.accelerators) {
      option.available_gpus = static_cast<int>(rng.integer(0, 8));
      option.spec.price_per_hour = rng.uniform(0.1, 10);
    }
    const ReplicatedResult result = place_replicated(input);
    if (result.candidates.empty()) continue;
    const Candidate& winner = result.candidates.front();
    for (const Candidate& other : result.candidates) {
      ASSERT_TRUE(winner.has_room || !other.has_room);
      if (other.has_room == winner.has_room) {
        ASSERT_LE(winner.cost_per_hour, other.cost_per_hour);
      }
      const SizingInput sizing{input.requests_per_s,
                               other.config.times.service_s,
                               other.config.batch,
                               input.objective.ttft_s - other.config.times.ttft_s,
                               95,
                               kMaxUtilisation};
      ASSERT_TRUE(workers_suffice(sizing, other.workers));
      ASSERT_FALSE(other.workers > 1 && workers_suffice(sizing, other.workers - 1));
    }
  }
}

}  // namespace
}  // namespace windlass::planner
