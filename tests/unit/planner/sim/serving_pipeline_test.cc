// Tests pipeline stages: one request, full lanes, bubbles computed by hand, and every stage's timeline against a reference that
// moves microbatches from stage to stage.
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "planner/sim/event_time.h"
#include "planner/sim/serving_simulation.h"
#include "tests/effort.h"
#include "tests/list_source.h"
#include "tests/unit/planner/sim/serving_fixture.h"

namespace windlass::sim {
namespace {

ServingOptions one_worker(const Line& model, planner::Batching batching = planner::Batching::kVllm) {
  ServingOptions options;
  options.pools = {pool_of(model, dispatch::Role::kUnified, 1, batching)};
  return options;
}

// Given one request through one to seven stages; expects each iteration to take the model's whole time, to the nanosecond, and
// each stage to be busy for its share of that.
TEST(ServingPipeline, OneRequestTakesWholeIterations) {
  for (int stages = 1; stages <= 7; ++stages) {
    Line model;
    model.stages = stages;
    ListSource source({{1, 1, 100, 4}});
    const auto result = simulate_serving(source, one_worker(model));
    ASSERT_TRUE(result.ok());
    EXPECT_NEAR(result->ttft.mean_s, 0.02, 1e-9) << stages;
    EXPECT_NEAR(result->e2e.mean_s, 0.02 + 3 * 0.011, 1e-9) << stages;
    EXPECT_NEAR(result->busy_share, 0.053 / stages / 1.053, 1e-6) << stages;
  }
}

// Given equal microbatches waiting in all lanes; expects no bubbles: as many lanes pass per iteration time as there are stages,
// and every stage is busy except while the first microbatch enters and the last one leaves.
TEST(ServingPipeline, EqualMicrobatchesLeaveNoBubbles) {
  for (const int stages : {1, 2, 4, 5}) {
    Line model;
    model.stages = stages;
    model.per_prompt_token_s = model.per_decode_s = 0;
    ServingOptions options = one_worker(model);
    options.pools[0].spec.engine.max_sequences = 1;
    ListSource source(std::vector<workload::Request>(static_cast<std::size_t>(20 * stages), {0, 1, 10, 30}));
    const auto result = simulate_serving(source, options);
    ASSERT_TRUE(result.ok());
    const double full_s = 20 * 30 * 0.01;
    EXPECT_EQ(result->iterations, 20 * stages * 30);
    EXPECT_NEAR(result->simulated_s, full_s + 0.01 * (stages - 1) / stages, 1e-9);
    EXPECT_NEAR(result->busy_share, full_s / result->simulated_s, 1e-9);
  }
}

// Given two stages and prompts of 4, 2 and 4 s in lanes 0, 1 and 1, one sequence at a time; expects the second microbatch to
// finish the first stage after 3 s and to wait until 4 s, when the first one leaves the second stage; the third begins when the
// second, of its own lane, has ended.
TEST(ServingPipeline, UnequalMicrobatchesLeaveBubbles) {
  Line model;
  model.base_s = 0;
  model.per_prompt_token_s = 1;
  model.stages = 2;
  ServingOptions options = one_worker(model);
  options.pools[0].spec.engine.max_sequences = 1;
  Witness witness;
  options.observer = &witness;
  ListSource source({{0, 1, 4, 1}, {0, 1, 2, 1}, {0, 1, 4, 1}});
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(witness.request(0).e2e_s, 4, 1e-9);
  EXPECT_NEAR(witness.request(1).scheduling_delay_s, 2, 1e-9);
  EXPECT_NEAR(witness.request(1).e2e_s, 5, 1e-9);
  EXPECT_NEAR(witness.request(2).scheduling_delay_s, 5, 1e-9);
  EXPECT_NEAR(witness.request(2).e2e_s, 9, 1e-9);
  EXPECT_NEAR(result->busy_share, 10.0 / 2 / 9, 1e-9);
}

// Given a pipeline whose worker fails when its first microbatch of 4 s has been in the second stage for one second and its
// second one in the first stage for as long; expects the stages to be busy for 2 + 1 + 1 of 6 s, without the parts that were
// cut off.
TEST(ServingPipeline, AFailureCutsTheStagesOff) {
  Line model;
  model.base_s = 0;
  model.per_prompt_token_s = 1;
  model.stages = 2;
  ServingOptions options = one_worker(model);
  options.failures.at = {{3, 0}};
  options.failures.restart = false;
  ListSource source({{0, 1, 4, 1}, {0, 1, 4, 1}});
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->failed, 2);
  EXPECT_NEAR(result->workers[0].busy_share, 4.0 / 6, 1e-9);
}

// Microbatches move from stage to stage; each stage serves them in order of arrival. Seconds become nanoseconds as in the
// simulator; the first stages take the remainder.
std::vector<std::int64_t> ends_by_hand(const Line& model, const planner::EngineSettings& engine_options,
                                       const std::vector<workload::Request>& requests) {
  struct Microbatch {
    std::size_t lane;
    std::int64_t whole_ns;
  };
  struct Stage {
    std::deque<Microbatch> waiting;
    std::optional<Microbatch> served;
    std::int64_t until_ns = 0;
  };
  const auto stages = static_cast<std::size_t>(model.stages);
  std::vector<Stage> pipeline(stages);
  std::vector<SimulatedEngine> lanes(stages, SimulatedEngine(engine_options));
  std::vector<bool> away(stages, false);
  std::vector<std::int64_t> ends(requests.size(), 0);
  std::size_t arrived = 0, turn = 0, ended = 0;
  std::int64_t now_ns = 0;
  const auto serve = [&](std::size_t s) {
    Stage& stage = pipeline[s];
    if (stage.served || stage.waiting.empty()) return;
    stage.served = stage.waiting.front();
    stage.waiting.pop_front();
    const auto count = static_cast<std::int64_t>(stages);
    stage.until_ns =
        now_ns + stage.served->whole_ns / count + (static_cast<std::int64_t>(s) < stage.served->whole_ns % count ? 1 : 0);
  };
  const auto fill_first_stage = [&] {
    for (std::size_t looked = 0; looked < stages && !pipeline[0].served; ++looked) {
      const std::size_t lane = (turn + looked) % stages;
      if (away[lane]) continue;
      const auto batch = lanes[lane].begin();
      if (!batch) continue;
      away[lane] = true;
      turn = (lane + 1) % stages;
      pipeline[0].waiting.push_back({lane, after(0, model.iteration_s(*batch))});
      serve(0);
      return;
    }
  };
  while (ended < requests.size()) {
    std::int64_t next_ns = std::numeric_limits<std::int64_t>::max();
    if (arrived < requests.size()) next_ns = after(0, requests[arrived].arrival_s);
    for (const Stage& stage : pipeline) {
      if (stage.served) next_ns = std::min(next_ns, stage.until_ns);
    }
    now_ns = next_ns;
    while (arrived < requests.size() && after(0, requests[arrived].arrival_s) == now_ns) {
      std::size_t lane = 0;
      for (std::size_t other = 1; other < stages; ++other) {
        if (lanes[other].pending_tokens() < lanes[lane].pending_tokens()) lane = other;
      }
      SequenceSpec spec;
      spec.request = static_cast<int>(arrived);
      spec.prompt_tokens = requests[arrived].input_tokens;
      spec.output_tokens = requests[arrived].output_tokens;
      lanes[lane].enqueue(spec);
      ++arrived;
    }
    for (std::size_t s = stages; s-- > 0;) {
      Stage& stage = pipeline[s];
      if (!stage.served || stage.until_ns != now_ns) continue;
      const Microbatch leaves = *stage.served;
      stage.served.reset();
      if (s + 1 < stages) {
        pipeline[s + 1].waiting.push_back(leaves);
      } else {
        away[leaves.lane] = false;
        for (const int request : lanes[leaves.lane].end().finished) {
          ends[static_cast<std::size_t>(request)] = now_ns;
          ++ended;
        }
      }
    }
    for (std::size_t s = 0; s < stages; ++s) serve(s);
    fill_first_stage();
  }
  return ends;
}

// Given 600 random workers of one to five stages under random requests, with every batching; expects each request to end in the
// same nanosecond as in the reference.
TEST(ServingPipeline, AgreesWithMovingMicrobatchesStageByStage) {
  Rng rng(7, "pipelines");
  std::int64_t preemptions = 0;
  for (int round = 0; round < effort(60, 600); ++round) {
    Line model;
    model.stages = 1 + round % 5;
    model.base_s = rng.uniform(0.001, 0.02);
    model.per_prompt_token_s = rng.uniform(1e-5, 3e-4);
    model.per_decode_s = rng.uniform(1e-5, 2e-3);
    model.per_context_token_s = rng.uniform(1e-7, 1e-5);
    ServingOptions options =
        one_worker(model, planner::kAllBatchings[static_cast<std::size_t>(round / 5) % planner::kAllBatchings.size()]);
    planner::EngineSettings& engine = options.pools[0].spec.engine;
    engine.max_sequences = static_cast<int>(rng.integer(1, 6));
    engine.max_batch_tokens = static_cast<int>(rng.integer(20, 300));
    engine.kv_blocks = rng.integer(16, 60) * model.stages;
    const auto requests = random_requests(rng, 60, rng.uniform(1, 40), 200, 40);
    Witness witness;
    options.observer = &witness;
    ListSource source(requests);
    const auto result = simulate_serving(source, options);
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->completed, 60);
    preemptions += result->preemptions;
    planner::EngineSettings lane = engine;
    lane.kv_blocks /= model.stages;
    const auto ends = ends_by_hand(model, lane, requests);
    for (std::int64_t i = 0; i < 60; ++i) {
      const ServedRequest& served = witness.request(i);
      ASSERT_NEAR(served.arrival_s + served.e2e_s, seconds_between(0, ends[static_cast<std::size_t>(i)]), 1e-10)
          << "round " << round << ", request " << i;
    }
  }
  EXPECT_GT(preemptions, effort(6, 100));
}

// Given one request of 100 tokens that makes 4, on half of the pages while it runs; expects MFU and mean use of the cache over
// the whole time, computed by hand.
TEST(ServingPipeline, CountsFlopsAndPages) {
  Line model;
  for (const int stages : {1, 2}) {
    model.stages = stages;
    ServingOptions options = one_worker(model);
    options.pools[0].spec.engine.kv_blocks = 14;  // 7 hold 100 to 103 tokens; with two stages these are all pages of a lane
    options.pools[0].flops = {2e9, 1e6, 1e15};
    ListSource source({{1, 1, 100, 4}});
    const auto result = simulate_serving(source, options);
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->completed, 1);
    const double flops = 2e9 * (100 + 3) + 1e6 * (100 * 100 / 2.0 + 100 + 101 + 102);
    EXPECT_NEAR(result->mfu, flops / (1e15 * 1.053), 1e-12);
    EXPECT_NEAR(result->mean_kv_in_use, 0.5 * 0.053 / 1.053, 1e-9);
    EXPECT_NEAR(result->workers[0].mean_kv_in_use, result->mean_kv_in_use, 1e-12);
    EXPECT_NEAR(result->workers[0].mfu, result->mfu, 1e-15);
    EXPECT_EQ(result->workers[0].prefill_tokens, 100);
    EXPECT_EQ(result->workers[0].decode_tokens, 3);
    EXPECT_NEAR(result->mean_batch, 1, 1e-12);
  }
}

}  // namespace
}  // namespace windlass::sim
