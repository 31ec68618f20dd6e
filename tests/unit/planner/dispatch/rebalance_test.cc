// Tests of Aladdin's re-balancing: what a worker's error is, where a new request evens it out, and what the policy does with
// it.
#include "planner/dispatch/rebalance.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/aladdin_policy.h"
#include "planner/dispatch/packing_error.h"

namespace windlass::dispatch {
namespace {

constexpr PackingModel kModel = {1e-4, 5e-3, 1e-6, 2e-4, 1e-2, 60'000, 16, 64};
constexpr PackingRules kRules = {0.5, 0.05, 0.5, 0.9, PackingPhase::kDecode};

void expect_error(const PackingError& error, double tokens, double requests) {
  EXPECT_DOUBLE_EQ(error.tokens(), tokens);
  EXPECT_DOUBLE_EQ(error.requests(), requests);
}

// A worker with this many requests that decode.
PackedWorker decoding(PackedWorker::Handle requests, int predicted_tokens) {
  PackedWorker worker(kModel, kRules);
  for (PackedWorker::Handle request = 0; request < requests; ++request) {
    worker.add(request, 10, predicted_tokens, 0);
    worker.begin_decode(request, 0);
  }
  return worker;
}

// Given a request that exceeds its prediction and one that ended early; expects the sums of Alg. 2, until the one is withdrawn
// and the other was predicted to end.
TEST(PackingError, LastsUntilThePredictedEnd) {
  PackingError error;
  error.add(100);
  expect_error(error, 100, 1);
  error.ended_early(10, 30);  // 20 would have come
  expect_error(error, 80, 0);
  error.iterated(19.5);
  expect_error(error, 80, 0);
  error.iterated(0.5);
  expect_error(error, 100, 1);
  error.iterated(400);
  expect_error(error, 100, 1);
  error.withdraw(100);
  expect_error(error, 0, 0);
}

// Given a request that ended as predicted, or late; expects no error. Given moves; expects them on both sides.
TEST(PackingError, CountsMoves) {
  PackingError error;
  error.ended_early(30, 30);
  error.ended_early(31, 30);
  expect_error(error, 0, 0);
  error.gave(50);
  expect_error(error, -50, -1);
  error.add(20);
  expect_error(error, -30, 0);
  error.clear();
  expect_error(error, 0, 0);
}

// Given a packed worker; expects predictions that are renewed and early ends to count, failures not, and nothing once it is
// empty.
TEST(PackingError, IsThatOfAWorker) {
  PackedWorker worker = decoding(3, 20);
  worker.predict_again(0, 50);
  expect_error(worker.error(), 50, 1);
  EXPECT_DOUBLE_EQ(worker.error_s(), 50e-6 + 2e-4);
  worker.remove(1, 5);
  expect_error(worker.error(), 35, 0);
  worker.remove(2);
  expect_error(worker.error(), 35, 0);
  worker.remove(0, 60);
  expect_error(worker.error(), 0, 0);
}

// Given requests that exceed their predictions, next to one that goes on; expects their error to end with them: only what is
// missing of an early end is left, and nothing of a failure or of a request that was predicted more than once.
TEST(PackingError, EndsWithItsRequest) {
  PackedWorker worker = decoding(4, 100);
  worker.predict_again(0, 300);
  expect_error(worker.error(), 300, 1);
  worker.remove(0, 120);
  expect_error(worker.error(), -180, -1);
  worker.predict_again(1, 200);
  worker.predict_again(1, 400);
  expect_error(worker.error(), 220, 0);
  worker.remove(1);
  expect_error(worker.error(), -180, -1);
  worker.took(2);
  expect_error(worker.error(), -80, 0);
  worker.remove(2);
  expect_error(worker.error(), -180, -1);
}

// Given a request that ends exactly as predicted; expects no error, also while it makes its last token.
TEST(PackingError, IsNoneIfThePredictionWasRight) {
  PackedWorker worker = decoding(2, 5);
  for (int i = 0; i < 4; ++i) worker.iterated();
  EXPECT_FALSE(worker.overdue());
  worker.remove(0, 5);
  expect_error(worker.error(), 0, 0);
  worker.iterated();
  ASSERT_TRUE(worker.overdue());
  EXPECT_EQ(worker.overdue()->made, 6);
}

// Given three requests that each make a token, again and again; expects their thirds to be whole iterations.
TEST(PackingError, CountsThirdsExactly) {
  PackedWorker worker = decoding(4, 100);
  worker.remove(3, 50);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(worker.error().requests(), -1) << i;
    for (PackedWorker::Handle request = 0; request < 3; ++request) worker.tokens_made(request, 1);
  }
  expect_error(worker.error(), 0, 0);
}

// Given the tokens of one of two decoding requests; expects half an iteration for each.
TEST(PackingError, FollowsTheTokensOfSingleRequests) {
  PackedWorker worker = decoding(3, 20);
  worker.remove(2, 16);  // four iterations early
  worker.tokens_made(0, 4);
  expect_error(worker.error(), -4, -1);
  worker.tokens_made(1, 4);
  expect_error(worker.error(), 0, 0);
}

// Given many answers that are not streamed and end early, on a worker that is never empty; expects their tokens to let errors
// end. Each error lasts 50 iterations, and an answer stands for 24.5.
TEST(PackingError, EndsThoughNoTokensAreSeen) {
  PackedWorker worker = decoding(1, 100'000);
  for (PackedWorker::Handle request = 1; request < 1000; ++request) {
    worker.add(request, 10, 100, 0);
    worker.begin_decode(request, 0);
    worker.remove(request, 50);
    ASSERT_GE(worker.error().requests(), -3) << request;
  }
  EXPECT_LT(worker.error().requests(), 0);
}

// Given random workers with errors; expects that a request leaves only a worker with a positive error, for the one with a
// negative error at which the sum of the magnitudes is least among all that have room.
TEST(Rebalance, FindsTheLeastSumOfErrors) {
  Rng rng(3, "rebalance");
  int moved = 0, stayed = 0;
  for (int round = 0; round < 2000; ++round) {
    BestFit fit(kRules);
    const auto count = static_cast<std::size_t>(rng.integer(2, 6));
    PackedWorker::Handle next = 0;
    for (std::size_t w = 0; w < count; ++w) {
      PackingModel model = kModel;
      model.max_requests = static_cast<int>(rng.integer(3, 12));
      model.context_token_s *= rng.uniform(0.5, 2);
      fit.add_worker(model);
      for (int i = static_cast<int>(rng.integer(0, 8)); i > 0; --i) {
        const auto predicted = static_cast<int>(rng.integer(20, 400));
        fit.add(w, next, 100, predicted, 0);
        fit.begin_decode(w, next, 0);
        if (rng.integer(0, 2) == 0) fit.predict_again(w, next, predicted + 50);
        if (rng.integer(0, 2) == 0) fit.remove(w, next, predicted / 2);
        ++next;
      }
      fit.set_open(w, rng.integer(0, 5) != 0);
    }
    const auto predicted = static_cast<int>(rng.integer(10, 400));
    const auto placed = fit.find(100, predicted, 0);
    if (!placed) continue;
    const auto sum_at = [&](std::size_t chosen) {
      double sum = 0;
      for (std::size_t w = 0; w < count; ++w) {
        const PackedWorker& worker = fit.worker(w);
        double error_s = worker.error_s();
        if (chosen != *placed && w == *placed) error_s -= worker.time_s(predicted, 1);
        if (chosen != *placed && w == chosen) error_s += worker.time_s(predicted, 1);
        sum += std::abs(error_s);
      }
      return sum;
    };
    const std::size_t chosen = rebalanced(fit, *placed, 100, predicted, 0);
    for (std::size_t w = 0; w < count; ++w) {
      const bool errs = fit.worker(*placed).error_s() > 0 && fit.worker(w).error_s() < 0;
      const bool may = errs && fit.is_open(w) && fit.worker(w).requests() > 0 && fit.worker(w).fits(100, predicted, 0);
      ASSERT_TRUE(w != chosen || may || w == *placed) << round;
      if (may) {
        ASSERT_LE(sum_at(chosen), sum_at(w) + 1e-12) << round;
      }
    }
    ASSERT_LE(sum_at(chosen), sum_at(*placed)) << round;
    ++(chosen == *placed ? stayed : moved);
  }
  EXPECT_GT(moved, 100);
  EXPECT_GT(stayed, 100);
}

// Two chains with slots for the requests of one more; `rebalances` as given.
struct TwoChains {
  AladdinPolicy policy;
  std::vector<ChainState> chains = {{1, 8, 0, false, 7, &kModel}, {1, 8, 0, false, 9, &kModel}};
  std::uint64_t last_id = 0;

  explicit TwoChains(bool rebalances)
      : policy([&] {
          PackingRules rules = kRules;
          rules.rebalances = rebalances;
          return rules;
        }()) {
    policy.reset(chains);
  }

  std::uint64_t start(std::size_t chain, int input, int predicted) {
    policy.placed(chain, {++last_id, input, predicted});
    policy.first_token(last_id, 0);
    return last_id;
  }

  // A fuller chain 0 whose requests run longer than predicted, and a chain 1 on which one ended early.
  void err() {
    for (int i = 0; i < 3; ++i) start(0, 200, 10);
    start(1, 100, 400);
    const std::uint64_t early = start(1, 100, 400);
    for (int i = 0; i < 12; ++i) {
      policy.iterated(0);
      policy.iterated(1);
    }
    policy.ended(early, 13);
  }
};

// Given a fuller chain with overruns and another with an early end; expects a new request at the other, and the move counted
// once it is placed there. Without re-balancing it goes to the fuller one.
TEST(Rebalance, SendsNewRequestsWhereLessIsLeftThanPredicted) {
  TwoChains with(true), without(false);
  with.err();
  without.err();
  EXPECT_GT(with.policy.workers().worker(0).norm(), with.policy.workers().worker(1).norm());
  EXPECT_EQ(without.policy.choose_for({100, 50, 50}, 1), 0U);
  EXPECT_EQ(with.policy.choose_for({100, 50, 50}, 1), 1U);
  EXPECT_EQ(with.policy.rebalanced(), 0) << "a choice changes nothing";
  const double before = with.policy.workers().worker(0).error().requests();
  with.policy.placed(1, {100, 50, 50});
  EXPECT_EQ(with.policy.rebalanced(), 1);
  EXPECT_EQ(with.policy.workers().worker(0).error().requests(), before - 1);
}

// Given a request that is placed elsewhere than the policy chose, or another one; expects no move to be counted.
TEST(Rebalance, CountsOnlyWhatWasMoved) {
  TwoChains two(true);
  two.err();
  EXPECT_EQ(two.policy.choose_for({100, 50, 50}, 1), 1U);
  two.policy.placed(0, {100, 50, 50});
  EXPECT_EQ(two.policy.choose_for({101, 50, 50}, 1), 1U);
  two.policy.placed(1, {102, 50, 50});
  EXPECT_EQ(two.policy.rebalanced(), 0);
}

}  // namespace
}  // namespace windlass::dispatch
