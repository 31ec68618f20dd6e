// Tests of Aladdin's placement: a worker's constraints evaluated over every iteration, best fit against a search of all
// workers, output lengths from history, and the whole policy.
#include "planner/dispatch/best_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/aladdin_policy.h"
#include "planner/dispatch/output_history.h"
#include "tests/effort.h"

namespace windlass::dispatch {
namespace {

constexpr PackingModel kModel = {1e-4, 5e-3, 1e-6, 2e-4, 1e-2, 6000, 16, 24};
constexpr PackingRules kRules = {0.5, 0.025, 0.5, 0.9, PackingPhase::kBoth};

// A worker by definition: looks at every request and every coming iteration.
class WorkerByDefinition {
 public:
  WorkerByDefinition(const PackingModel& model, const PackingRules& rules) : model_(model), rules_(rules) {}

  struct Request {
    int input, predicted;
    bool decodes = false;
    int made = 0;
    int aged = 0;  // iterations since it arrived, while it does not decode
    double since_s = 0;
    double added_s = 0;
  };
  std::map<PackedWorker::Handle, Request> requests;

  void iterated() {
    for (auto& [handle, request] : requests) ++(request.decodes ? request.made : request.aged);
  }

  // Cache tokens `step` iterations from now; 0 after its predicted end, which is at least one iteration away.
  [[nodiscard]] double cache(const Request& of, int step) const {
    const int done = of.decodes ? of.made : of.aged;
    const int last = std::max(1, of.predicted - done);
    return step > last ? 0 : of.input + done + step + model_.kv_request_tokens;
  }

  [[nodiscard]] double context() const {
    double sum = 0;
    for (const auto& [handle, request] : requests) sum += request.input + rules_.gamma * request.predicted;
    return sum;
  }

  [[nodiscard]] bool fits(int input, int predicted, double now_s) const {
    if (requests.empty()) return input + model_.kv_request_tokens <= model_.kv_capacity_tokens;
    const auto batch = static_cast<double>(requests.size() + 1);
    if (batch > model_.max_requests) return false;
    if (rules_.phase != PackingPhase::kPrefill) {
      const double max_s = rules_.theta * rules_.tpot_s - model_.decode_s - model_.decode_request_s * batch;
      if (context() + input + rules_.gamma * predicted > max_s / model_.context_token_s) return false;  // (b)
    }
    if (rules_.phase != PackingPhase::kDecode) {
      double prompts = input, saved_s = std::numeric_limits<double>::infinity();
      for (const auto& [handle, request] : requests) {
        if (!request.decodes) prompts += request.input;
        if (!request.decodes && request.added_s < now_s && rules_.phase == PackingPhase::kBoth)
          saved_s = std::min(saved_s, 0.0);
        if (request.decodes) saved_s = std::min(saved_s, rules_.tpot_s * (request.made - 1) - (now_s - request.since_s));
      }
      const double prefill_s = model_.prefill_token_s * prompts + model_.prefill_s;
      if (prefill_s > rules_.ttft_s || prefill_s > rules_.theta * saved_s) return false;  // (c), (d)
    }
    const Request added{input, rules_.phase == PackingPhase::kPrefill ? 0 : predicted};
    const int steps = rules_.phase == PackingPhase::kPrefill ? 0 : predicted;
    for (int step = 0; step <= steps; ++step) {  // (e)
      double sum = added.input + step + model_.kv_request_tokens;
      for (const auto& [handle, request] : requests) sum += cache(request, step);
      if (sum > model_.kv_capacity_tokens) return false;
    }
    return true;
  }

 private:
  PackingModel model_;
  PackingRules rules_;
};

struct Tally {
  int placed = 0;
  int refused = 0;
};

// One random history of a few workers: after each event BestFit must find what a search of all workers finds.
void follow(std::uint64_t seed, PackingPhase phase, int workers, int steps, Tally& tally) {
  Rng rng(seed, "packing");
  PackingRules rules = kRules;
  rules.phase = phase;
  rules.gamma = 0.25 * static_cast<double>(rng.integer(0, 4));
  PackingModel model = kModel;
  model.kv_capacity_tokens = static_cast<double>(rng.integer(2000, 9000));
  BestFit fit(rules);
  std::vector<WorkerByDefinition> defined;
  for (int w = 0; w < workers; ++w) {
    fit.add_worker(model);
    defined.emplace_back(model, rules);
  }
  PackedWorker::Handle next = 0;
  double now_s = 0;
  for (int step = 0; step < steps; ++step) {
    const auto w = static_cast<std::size_t>(rng.integer(0, workers - 1));
    WorkerByDefinition& at = defined[w];
    auto one = at.requests.begin();
    if (!at.requests.empty()) std::advance(one, rng.integer(0, static_cast<std::int64_t>(at.requests.size()) - 1));
    const auto what = rng.integer(0, 19);
    if (what < 8 && phase != PackingPhase::kPrefill) {
      now_s += 0.002 * rng.uniform();
      fit.iterated(w);
      at.iterated();
    } else if (what == 8 && !at.requests.empty()) {
      fit.remove(w, one->first);
      at.requests.erase(one);
    } else if (what < 12 && !at.requests.empty() && phase != PackingPhase::kPrefill) {
      fit.begin_decode(w, one->first, now_s);
      if (!one->second.decodes) {
        one->second.decodes = true;
        one->second.made = 1;
        one->second.since_s = now_s;
      }
    } else if (what == 12 && !at.requests.empty() && one->second.decodes) {
      fit.predict_again(w, one->first, one->second.made + 7);
      one->second.predicted = one->second.made + 7;
    } else if (what == 13 && !at.requests.empty() && one->second.decodes) {
      fit.tokens_made(w, one->first, 3);
      one->second.made += 3;
    } else if (what == 14) {
      fit.set_open(w, rng.integer(0, 3) != 0);
    } else {
      const auto input = static_cast<int>(rng.integer(1, 800)), predicted = static_cast<int>(rng.integer(1, 400));
      std::optional<std::size_t> best;
      for (std::size_t k = 0; k < defined.size(); ++k) {
        const bool fits = fit.is_open(k) && defined[k].fits(input, predicted, now_s);
        if (fits && (!best || fit.worker(k).norm() > fit.worker(*best).norm())) best = k;
      }
      ASSERT_EQ(fit.find(input, predicted, now_s), best) << "seed " << seed << ", step " << step;
      ++(best ? tally.placed : tally.refused);
      if (!best) continue;
      fit.add(*best, next, input, predicted, now_s);
      defined[*best].requests[next] = {input, predicted};
      defined[*best].requests[next++].added_s = now_s;
    }
    ASSERT_NEAR(fit.worker(w).context(), at.context(), 1e-6);
    const double batch = fit.worker(w).requests() / 24.0, context = at.context() / std::min(15'000.0, model.kv_capacity_tokens);
    ASSERT_NEAR(fit.worker(w).norm(), std::hypot(batch, context), 1e-9);
  }
}

// Given random histories of 1 to 8 workers and of 200 workers, in each phase; expects find() to return the fullest worker that
// keeps (b) to (e) as written, and both answers to occur often.
TEST(BestFit, AgreesWithASearchOfAllWorkers) {
  for (const PackingPhase phase : {PackingPhase::kBoth, PackingPhase::kPrefill, PackingPhase::kDecode}) {
    Tally tally;
    const std::uint64_t small_cases = effort(40U, 300U), large_cases = effort(1U, 3U);
    for (std::uint64_t seed = 1; seed <= small_cases + large_cases; ++seed) {
      const bool large = seed > small_cases;
      follow(seed, phase, large ? 200 : 1 + static_cast<int>(seed % 8), large ? 3000 : 400, tally);
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(tally.placed, effort(500, 2000));
    EXPECT_GT(tally.refused, effort(500, 2000));
  }
}

// Given two workers with room; expects the fuller one. Given that one full; expects the other. Given both full; expects none.
TEST(BestFit, FillsTheFullest) {
  PackingModel model;
  model.max_requests = 3;
  BestFit fit(kRules);
  fit.add_worker(model);
  fit.add_worker(model);
  fit.add(1, 0, 10, 10, 0);
  for (PackedWorker::Handle request = 1; request < 3; ++request) {
    EXPECT_EQ(fit.find(10, 10, 0), 1U);
    fit.add(1, request, 10, 10, 0);
  }
  EXPECT_EQ(fit.find(10, 10, 0), 0U);
  for (PackedWorker::Handle request = 3; request < 6; ++request) fit.add(0, request, 10, 10, 0);
  EXPECT_EQ(fit.find(10, 10, 0), std::nullopt);
}

// The paper's Fig. 3: caches of 9 tokens, long and short prompts and outputs. Two long outputs on one worker would need 10 at
// their ends; expects a long prompt next to a long output.
TEST(BestFit, PacksLongPromptsNextToLongOutputs) {
  PackingModel model;
  model.kv_capacity_tokens = 9;
  model.kv_request_tokens = 0;
  BestFit fit(kRules);
  fit.add_worker(model);
  fit.add_worker(model);
  fit.add(0, 0, 4, 1, 0);            // a long prompt
  EXPECT_EQ(fit.find(4, 1, 0), 1U);  // another one: 10 after the first iteration
  fit.add(1, 1, 4, 1, 0);
  EXPECT_EQ(fit.find(1, 4, 0), 0U);  // a long output: 5 + 2 at the first end, 5 at its own
  fit.add(0, 2, 1, 4, 0);
  EXPECT_EQ(fit.find(1, 4, 0), 1U) << "9 at the first end, 10 at the second: not on the first";
}

// Given no history; expects a guess. Given history; expects the mean of similar inputs, then the mean of the longer ones once
// that is exceeded, and beyond all of them more than the present length.
TEST(OutputHistory, PredictsFromSimilarRequests) {
  OutputHistory history;
  EXPECT_EQ(history.predict(100), OutputHistory::kUnknown);
  for (int i = 0; i < 100; ++i) {
    history.observe(100, i < 50 ? 20 : 400);
    history.observe(2000, 1000);
  }
  EXPECT_EQ(history.predict(100), 210);
  EXPECT_EQ(history.predict(110), 210) << "within a factor of sqrt(2)";
  EXPECT_EQ(history.predict(2000), 1000);
  EXPECT_EQ(history.predict(10), 605) << "nothing similar: the mean of all";
  EXPECT_EQ(history.predict(100, 30), 400);
  EXPECT_EQ(history.predict(100, 2000), 3000);
  EXPECT_EQ(history.predict(2000, 900), 1000);
  EXPECT_GT(history.predict(2000, 1000), 1000);
  history.forget();
  EXPECT_EQ(history.observed(), 100);
  EXPECT_EQ(history.predict(100), 210);
}

// Given history in which outputs depend on inputs; expects unbiased predictions: their sum within 1 % of the actual one.
TEST(OutputHistory, HasNoBias) {
  Rng rng(5, "lengths");
  OutputHistory history;
  double predicted = 0, real = 0;
  for (int i = 0; i < 40'000; ++i) {
    const auto input = static_cast<int>(rng.integer(1, 2000));
    const auto output = 1 + static_cast<int>(rng.exponential(1.0 / (50 + input / 4.0)));
    if (i >= 20'000) {
      predicted += history.predict(input);
      real += output;
    }
    history.observe(input, output);
  }
  EXPECT_NEAR(predicted / real, 1, 0.01);
}

// Given requests whose answers exceed their prediction; expects the policy to predict again and to count the worker as fuller.
// Given their end; expects an empty worker and the lengths learned.
TEST(AladdinPolicy, PredictsAgainAfterAnOverrun) {
  AladdinPolicy policy(kRules);
  std::vector<ChainState> chains = {{1, 8, 0, false, 7, &kModel}};
  policy.reset(chains);
  policy.placed(0, {1, 100, 10});
  EXPECT_EQ(policy.workers().worker(0).context(), 105);
  policy.first_token(1, 0.1);
  for (int i = 0; i < 9; ++i) policy.iterated(0);
  EXPECT_EQ(policy.workers().worker(0).context(), 105) << "ten tokens are what was predicted";
  policy.iterated(0);
  EXPECT_GT(policy.workers().worker(0).context(), 105);
  policy.ended(1, 20);
  EXPECT_EQ(policy.workers().worker(0).requests(), 0);
  EXPECT_EQ(policy.workers().worker(0).context(), 0);
  EXPECT_EQ(policy.history().predict(100), 20);
  policy.ended(1, 20);
  EXPECT_EQ(policy.history().observed(), 1) << "nobody ends twice";
}

// Given a reset in which chains change places and one leaves; expects their requests to move with them, and the one that left
// to take nothing and let its requests end.
TEST(AladdinPolicy, KeepsRequestsOfChainsOverAReset) {
  AladdinPolicy policy(kRules);
  std::vector<ChainState> chains = {{1, 8, 0, false, 7, &kModel}, {1, 8, 0, false, 9, &kModel}};
  policy.reset(chains);
  policy.placed(0, {1, 100, 10});
  policy.placed(1, {2, 200, 10});
  policy.placed(1, {3, 50, 10});
  chains = {{1, 8, 2, false, 9, &kModel}, {1, 8, 0, false, 11, &kModel}};
  policy.reset(chains);
  EXPECT_EQ(policy.workers().worker(0).requests(), 2);
  EXPECT_EQ(policy.workers().worker(1).requests(), 0);
  EXPECT_EQ(policy.choose_for({4, 10, 10}, 0), 0U);
  policy.ended(1, 12);
  policy.ended(2, 12);
  EXPECT_EQ(policy.workers().worker(0).requests(), 1);
  EXPECT_EQ(policy.history().observed(), 2);
}

// Given chains of unknown latency; expects them to be filled one after the other, and a wait when their slots are taken.
TEST(AladdinPolicy, FillsSlotsIfNothingElseIsKnown) {
  AladdinPolicy policy({});
  std::vector<ChainState> chains = {{1, 2, 0, false}, {1, 1, 0, false}};
  policy.reset(chains);
  std::vector<std::size_t> taken;
  for (std::uint64_t id = 1; const auto chosen = policy.choose_for({id, 0, 0}, 0); ++id) {
    taken.push_back(*chosen);
    ++chains[*chosen].in_flight;
    policy.update(*chosen, chains[*chosen]);
    policy.placed(*chosen, {id, 0, 0});
    ASSERT_LT(id, 4U);
  }
  EXPECT_EQ(taken, (std::vector<std::size_t>{0, 0, 1}));
}

}  // namespace
}  // namespace windlass::dispatch
