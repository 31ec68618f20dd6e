// Tests which workers prefill and decode: flips, TetriInfer's two choices and length buckets, and the worker with the least
// promised memory.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "planner/sim/length_prediction.h"
#include "planner/sim/serving_simulation.h"
#include "planner/sim/serving_worker.h"
#include "planner/sim/worker_chooser.h"
#include "tests/list_source.h"
#include "tests/unit/planner/sim/serving_fixture.h"

namespace windlass::sim {
namespace {

ServingOptions two_roles(const Line& model, int prefill, int decode) {
  ServingOptions options;
  options.pools = {pool_of(model, dispatch::Role::kPrefill, prefill), pool_of(model, dispatch::Role::kDecode, decode)};
  options.link = {{1e9, 0, 0, 0}, 100};
  return options;
}

int of_role(const ServingResult& result, dispatch::Role role) {
  return static_cast<int>(
      std::count_if(result.workers.begin(), result.workers.end(), [&](const auto& worker) { return worker.role == role; }));
}

// Given long prompts and short answers, one prefill worker that is far behind and three idle decode workers; expects two of
// them to flip, one per window, never the last one, and much earlier first tokens than without flips.
TEST(ServingRoles, IdleDecodeWorkersFlip) {
  Line model;
  ServingOptions options = two_roles(model, 1, 3);
  Rng rng(5, "long prompts");
  std::vector<workload::Request> requests = random_requests(rng, 1000, 10, 4000, 3);
  ListSource fixed_source(requests), flipping_source(requests);
  const auto fixed = simulate_serving(fixed_source, options);
  options.dispatch.flip = dispatch::FlipPolicy{5, 0.1, 0.006};
  const auto flipping = simulate_serving(flipping_source, options);
  ASSERT_TRUE(fixed.ok() && flipping.ok());
  EXPECT_EQ(fixed->flips, 0);
  EXPECT_EQ(flipping->flips, 2);
  EXPECT_EQ(of_role(*flipping, dispatch::Role::kPrefill), 3);
  EXPECT_EQ(of_role(*flipping, dispatch::Role::kDecode), 1);
  EXPECT_EQ(flipping->completed, 1000);
  EXPECT_LT(flipping->ttft.p50_s, fixed->ttft.p50_s / 4);
}

// Given short prompts and long answers, and three prefill workers; expects them to flip the other way.
TEST(ServingRoles, IdlePrefillWorkersFlip) {
  Line model;
  ServingOptions options = two_roles(model, 3, 1);
  options.pools[1].spec.engine.max_sequences = 8;
  options.dispatch.flip = dispatch::FlipPolicy{5, 0.1, 0.006};
  Rng rng(6, "long answers");
  ListSource source(random_requests(rng, 200, 3, 50, 600));
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 200);
  EXPECT_EQ(of_role(*result, dispatch::Role::kPrefill), 1);
  EXPECT_EQ(result->flips, 2);
}

// Given no busy worker, or only one worker of the idle role; expects no flips.
TEST(ServingRoles, NobodyFlipsWithoutReason) {
  Line model;
  ServingOptions options = two_roles(model, 2, 2);
  options.dispatch.flip = dispatch::FlipPolicy{5, 0.1, 0.006};
  ListSource idle({{0, 1, 10, 2}, {60, 1, 10, 2}});
  EXPECT_EQ(simulate_serving(idle, options)->flips, 0);
  options.pools[1].workers = 1;
  Rng rng(5, "long prompts");
  ListSource busy(random_requests(rng, 500, 10, 4000, 3));
  EXPECT_EQ(simulate_serving(busy, options)->flips, 0);
}

// Given prefills of 36 s on both prefill workers over several windows of 10 s, while decodes are busy, and then 30 s of
// nothing; expects no flip: a worker in a long iteration is not idle.
TEST(ServingRoles, OneLongIterationIsNotIdle) {
  Line model;
  model.per_prompt_token_s = 1e-3;
  ServingOptions options = two_roles(model, 2, 1);
  options.dispatch.flip = dispatch::FlipPolicy{10, 0.1, 0.006};
  ListSource source({{0, 1, 10, 3000}, {1, 1, 36000, 2}, {1, 1, 36000, 2}});
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 3);
  EXPECT_GT(result->simulated_s, 33);
  EXPECT_EQ(result->flips, 0);
}

// Given a prefill worker that is behind, a decode worker with work, and another that started a second before the window ends;
// expects no flip: the time before it existed does not count as idle, and it is busy in later windows.
TEST(ServingRoles, AYoungWorkerIsNotIdleYet) {
  Line model;
  ServingOptions options = two_roles(model, 1, 1);
  options.dispatch.flip = dispatch::FlipPolicy{10, 0.3, 0.006};
  ScriptedController controller;
  options.controller = &controller;
  controller.orders = [&](const ClusterObservation&) {
    ClusterOrders orders;
    if (controller.seen.size() == 10) orders.start.push_back({0, &options.pools[1], 1});  // second 9
    return orders;
  };
  std::vector<workload::Request> requests;
  for (int i = 0; i < 200; ++i) requests.push_back({i * 0.25, 1, 4000, 60});
  ListSource source(requests);
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 200);
  EXPECT_EQ(result->flips, 0);
  EXPECT_GT(result->workers[2].busy_share, 0.3);
}

// Workers with the given heavy and light decodes, and pages.
struct Decodes {
  int heavy = 0, light = 0, pages = 1000;
};
struct Candidates {
  Line model;
  std::vector<ServingPool> pools;
  ServingWorkers workers;
  std::vector<int> ids;

  explicit Candidates(const std::vector<Decodes>& decodes) {
    pools.reserve(decodes.size());
    for (const Decodes& of : decodes) {
      pools.push_back(pool_of(model, dispatch::Role::kDecode, 1));
      pools.back().spec.engine.kv_blocks = of.pages;
      const int id = static_cast<int>(workers.size());
      workers.push_back(std::make_unique<ServingWorker>(id, 0, pools.back(), 0));
      workers.back()->decodes = of.heavy + of.light;
      workers.back()->heavy_decodes = of.heavy;
      ids.push_back(id);
    }
  }
  // How often each is chosen in 600 draws for a request of 100 prompt tokens.
  std::map<int, int> chosen(bool heavy, int output_tokens = 60, int predicted = 0) {
    SequenceSpec spec;
    spec.prompt_tokens = 100;
    spec.output_tokens = output_tokens;
    spec.predicted_output_tokens = predicted;
    Rng rng(9, "choice");
    std::map<int, int> times;
    for (int i = 0; i < 600; ++i) ++times[two_choice(workers, ids, spec, heavy, rng)];
    return times;
  }
};

// Given decode workers with known decodes; expects, of two drawn, the one whose ratio of heavy to light decodes would be lower
// with a heavy request; a light one goes to the one with fewer decodes.
TEST(ServingRoles, TwoChoicesSpreadHeavyDecodes) {
  // Ratios with one more heavy request: 3/4, 2/4, 6/1. The worst is never chosen, the best whenever it is drawn: in two of
  // three pairs.
  auto times = Candidates({{2, 4}, {1, 4}, {5, 1}}).chosen(true);
  EXPECT_EQ(times.count(2), 0U);
  EXPECT_NEAR(times[1], 400, 60);
  EXPECT_NEAR(times[0], 200, 60);
  // A light request goes to fewer decodes, whatever the ratio.
  EXPECT_EQ(Candidates({{4, 1}, {2, 0}}).chosen(false)[1], 600);
  // No light decodes count as one: 3/1 against 2/1.
  EXPECT_EQ(Candidates({{2, 0}, {1, 0}}).chosen(true)[1], 600);
  // All equal: the one drawn first, so each equally often.
  times = Candidates({{0, 0}, {0, 0}, {0, 0}, {0, 0}}).chosen(false);
  for (int worker = 0; worker < 4; ++worker) EXPECT_NEAR(times[worker], 150, 45);
}

// Given workers that are too full or too small; expects draws only among those with room for the predicted length; if none has
// room, among all that can ever hold the request; if none can, no worker.
TEST(ServingRoles, TwoChoicesLookForRoom) {
  // 100 + 60 tokens are ten pages.
  EXPECT_EQ(Candidates({{0, 0, 12}, {9, 1, 1000}, {9, 0, 12}}).chosen(true, 60, 200)[1], 600);
  EXPECT_EQ(Candidates({{0, 0, 9}, {9, 1, 10}}).chosen(true)[1], 600);
  auto times = Candidates({{0, 0, 12}, {1, 0, 12}}).chosen(false, 60, 200);
  EXPECT_EQ(times[0], 600);
  EXPECT_EQ(Candidates({{0, 0, 9}, {0, 0, 9}}).chosen(false)[-1], 600);
}

// Given the setting of Fig. 19: 32 requests for each of two to eight decode workers, half of them heavy; expects its trend: the
// worker with the most heavy decodes has fewer than with a random choice, and the one with the most decodes has fewer too.
TEST(ServingRoles, TwoChoicesAreBetterThanOneAtRandom) {
  SequenceSpec spec;
  spec.prompt_tokens = spec.output_tokens = 10;
  for (const int count : {2, 4, 8}) {
    double heavy_by_choice = 0, heavy_at_random = 0, all_by_choice = 0, all_at_random = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      Candidates candidates(std::vector<Decodes>(static_cast<std::size_t>(count)));
      std::vector<int> heavy(static_cast<std::size_t>(count)), all(static_cast<std::size_t>(count));
      Rng rng(seed, "fig 19");
      for (int i = 0; i < 32 * count; ++i) {
        const bool is_heavy = rng.uniform() < 0.5;
        ServingWorker& worker =
            *candidates.workers[static_cast<std::size_t>(two_choice(candidates.workers, candidates.ids, spec, is_heavy, rng))];
        ++worker.decodes;
        worker.heavy_decodes += is_heavy;
        const auto any = static_cast<std::size_t>(rng.integer(0, count - 1));
        ++all[any];
        heavy[any] += is_heavy;
      }
      int max_heavy = 0, most = 0;
      for (const auto& worker : candidates.workers) {
        max_heavy = std::max(max_heavy, worker->heavy_decodes);
        most = std::max(most, worker->decodes);
      }
      heavy_by_choice += max_heavy / 50.0;
      all_by_choice += most / 50.0;
      heavy_at_random += *std::max_element(heavy.begin(), heavy.end()) / 50.0;
      all_at_random += *std::max_element(all.begin(), all.end()) / 50.0;
    }
    EXPECT_LT(heavy_by_choice, heavy_at_random - 1.5) << count;
    EXPECT_LT(heavy_by_choice, 18);
    EXPECT_LT(all_by_choice, all_at_random - 2) << count;
  }
}

// Given alternating heavy and light requests, prefilled by one worker for two decode workers, with TetriInfer's choice and all
// lengths known; expects equal numbers of heavy ones on both, to within two.
TEST(ServingRoles, TwoChoicesBalanceAWholeRun) {
  Line model;
  ServingOptions options = two_roles(model, 1, 2);
  options.dispatch.decode_choice = dispatch::DecodeChoice::kTwoChoice;
  Witness witness;
  options.observer = &witness;
  std::vector<workload::Request> requests;
  for (int i = 0; i < 40; ++i) requests.push_back({i * 0.03, 1, 20, i % 3 == 0 ? 500 : 100});
  ListSource source(requests);
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completed, 40);
  int heavy_apart = 0;
  for (const ServedRequest& request : witness.requests) {
    if (request.output_tokens == 500) heavy_apart += request.decode_worker == 1 ? 1 : -1;
  }
  EXPECT_LE(std::abs(heavy_apart), 2);
}

// Given lengths in buckets of 200; expects each in its own bucket with accuracy 1, in either neighbour equally often with 0,
// the first bucket's only neighbour, and three of four correct with 0.749.
TEST(ServingRoles, PredictsBuckets) {
  Rng rng(1, "prediction");
  const dispatch::LengthPrediction right{200, 1}, wrong{200, 0}, paper;
  for (const auto& [tokens, at_least, middle] : {std::tuple{1, 1, 100}, {199, 1, 100}, {200, 200, 300}, {777, 600, 700}}) {
    const PredictedLength predicted = predict_length(right, tokens, rng);
    EXPECT_EQ(predicted.at_least, at_least);
    EXPECT_EQ(predicted.middle, middle);
  }
  std::map<int, int> times;
  int correct = 0;
  for (int i = 0; i < 10'000; ++i) {
    ++times[predict_length(wrong, 450, rng).at_least];
    EXPECT_EQ(predict_length(wrong, 7, rng).at_least, 200);
    correct += predict_length(paper, 450, rng).at_least == 400;
  }
  EXPECT_EQ(times.size(), 2U);
  EXPECT_NEAR(times[200], 5000, 200);
  EXPECT_NEAR(times[600], 5000, 200);
  EXPECT_NEAR(correct, 7490, 200);
}

// Given requests of different lengths at the same time; expects each to go to the decode worker with the fewest promised
// tokens, counting whole lengths; ended requests are no longer promised.
TEST(ServingRoles, LeastMemoryCountsWholeLengths) {
  Line model;
  ServingOptions options = two_roles(model, 1, 3);
  options.dispatch.decode_choice = dispatch::DecodeChoice::kLeastMemory;
  Witness witness;
  options.observer = &witness;
  // Promised: 700, 110, 400; then 110 + 300 = 410 and 400 + 20 = 420, and the 30 go to the one with 410.
  ListSource source({{0, 1, 600, 100},
                     {0, 1, 10, 100},
                     {0, 1, 200, 200},
                     {0, 1, 100, 200},
                     {0, 1, 10, 10},
                     {0, 1, 20, 10},
                     {100, 1, 10, 5},
                     {100, 1, 10, 5}});
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok());
  const std::vector<int> expected = {1, 2, 3, 2, 3, 2, 1, 2};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(witness.request(static_cast<std::int64_t>(i)).decode_worker, expected[i]) << i;
}

// Given two pairs of a prefill and a decode worker, and a third prefill worker without a partner; expects partners to decode
// what the first two prefill, and any decode worker for the third.
TEST(ServingRoles, PartnersStayTogether) {
  Line model;
  ServingOptions options = two_roles(model, 3, 2);
  options.dispatch.decode_choice = dispatch::DecodeChoice::kPartner;
  Witness witness;
  options.observer = &witness;
  std::vector<workload::Request> requests;
  for (int i = 0; i < 60; ++i) requests.push_back({i * 0.03, 1, 50 + i % 7 * 100, 20 + i % 5 * 100});
  ListSource source(requests);
  const auto result = simulate_serving(source, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->completed, 60);
  std::map<int, int> prefilled;
  for (const ServedRequest& request : witness.requests) {
    ++prefilled[request.prefill_worker];
    if (request.prefill_worker < 2) {
      EXPECT_EQ(request.decode_worker, request.prefill_worker + 3);
    }
  }
  EXPECT_EQ(prefilled.size(), 3U);
}

// Given a mixed pool and requests of a single token; expects that they need no decode worker and do not put the prefill worker
// into the mixed pool: a later prompt finds it in its own pool.
TEST(ServingRoles, ASingleTokenIsNoDecode) {
  Line model;
  ServingOptions options = two_roles(model, 2, 1);
  for (ServingPool& pool : options.pools) pool.spec.engine.batching = planner::Batching::kMixed;
  options.dispatch.mixed_pool_threshold_tokens = 8192;
  Witness witness;
  options.observer = &witness;
  // Worker 0 has less to do than worker 1 when the third request arrives; this decides.
  ListSource source({{0, 1, 100, 1}, {0, 1, 1000, 5}, {0.001, 1, 100, 5}});
  ASSERT_TRUE(simulate_serving(source, options).ok());
  EXPECT_EQ(witness.request(0).prefill_worker, 0);
  EXPECT_EQ(witness.request(0).decode_worker, 0);
  EXPECT_EQ(witness.request(1).prefill_worker, 1);
  EXPECT_EQ(witness.request(2).prefill_worker, 0);
}

// Given a mixed pool, one decode worker whose cache holds a fifth of the decodes, and four prefill workers with little to
// prefill; expects prefill workers that mostly decode to become decode workers, one per window and never the last one, and
// everything to be served with and without it. A load that one decode worker can serve moves nobody.
TEST(ServingRoles, MachinesThatStayMixedAreRepurposed) {
  Line model;
  model.capacity_tokens = 20'000;
  ServingOptions options = two_roles(model, 4, 1);
  for (ServingPool& pool : options.pools) pool.spec.engine.batching = planner::Batching::kMixed;
  options.dispatch.mixed_pool_threshold_tokens = 8192;
  options.dispatch.decode_choice = dispatch::DecodeChoice::kLeastMemory;
  const auto served = [&](double rate_per_s) {
    Rng rng(3, "long answers");
    ListSource source(random_requests(rng, 400, rate_per_s, 200, 4000));
    const auto result = simulate_serving(source, options);
    EXPECT_TRUE(result.ok());
    EXPECT_EQ(result->completed, 400);
    return *result;
  };
  EXPECT_EQ(served(2).flips, 0);
  options.dispatch.repurpose = dispatch::RepurposePolicy{20, 0.5};
  const ServingResult moved = served(2);
  EXPECT_GE(moved.flips, 2);
  EXPECT_GE(of_role(moved, dispatch::Role::kPrefill), 1);
  EXPECT_EQ(served(0.01).flips, 0);
  options.dispatch.mixed_pool_threshold_tokens.reset();
  options.dispatch.decode_choice = dispatch::DecodeChoice::kAtArrival;
  ListSource none({});
  const auto refused = simulate_serving(none, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("scheduling.repurpose: must be used with mixedPool (got none)"), std::string::npos);
}

}  // namespace
}  // namespace windlass::sim
