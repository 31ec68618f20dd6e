// Tests the engine against a plain one that looks at every sequence, token and page, and the invariants of every schedule.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/planner/sim/plain_engine.h"

namespace windlass::sim {
namespace {

struct Seen {
  std::int64_t iterations = 0, preemptions = 0, swapped_tokens = 0, prefix_hit_tokens = 0, refused = 0;
};

template <class T, std::size_t N>
T any_of(Rng& rng, const std::array<T, N>& all) {
  return all[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(N) - 1))];
}

std::vector<int> sorted(std::vector<int> values) {
  std::sort(values.begin(), values.end());
  return values;
}

// One schedule of random arrivals, hand-overs, reservations and joins on both engines.
class Schedule {
 public:
  Schedule(Rng& rng, const planner::EngineSettings& options, Seen& seen)
      : rng_(rng),
        options_(options),
        engine_(options),
        plain_(options),
        seen_(seen),
        requests_(static_cast<int>(rng.integer(1, 25))) {}

  void run() {
    for (int iteration = 0; gone_ < requests_; ++iteration) {
      ASSERT_LT(iteration, 20'000) << "it stands still";
      ASSERT_NO_FATAL_FAILURE(act(0.4));
      const auto batch = engine_.begin(), expected = plain_.begin();
      ASSERT_EQ(batch.has_value(), expected.has_value()) << iteration;
      ASSERT_NO_FATAL_FAILURE(compare(iteration));
      if (!batch) continue;
      ASSERT_EQ(*batch, *expected) << iteration;
      ASSERT_EQ(std::vector<int>(engine_.started().begin(), engine_.started().end()), plain_.started) << iteration;
      seen_.swapped_tokens += engine_.swapped_tokens();
      ASSERT_NO_FATAL_FAILURE(act(0.2));
      ASSERT_NO_FATAL_FAILURE(end(iteration));
    }
    EXPECT_EQ(engine_.free_blocks(), options_.kv_blocks);
    EXPECT_EQ(engine_.host_free_blocks(), options_.host_blocks);
    EXPECT_EQ(engine_.held(), 0);
    EXPECT_EQ(engine_.pending_tokens(), 0);
    seen_.preemptions += engine_.preemptions();
    seen_.prefix_hit_tokens += engine_.prefix_hit_tokens();
  }

 private:
  SequenceSpec random_spec() {
    SequenceSpec spec;
    spec.request = arrived_;
    do {
      spec.prompt_tokens = static_cast<int>(rng_.integer(1, 20));
      spec.output_tokens = static_cast<int>(rng_.integer(1, 15));
    } while (!engine_.can_hold(spec.prompt_tokens, spec.output_tokens));
    const double kind = rng_.uniform();
    if (kind < 0.5) spec.predicted_output_tokens = static_cast<int>(rng_.integer(1, 30));
    if (rng_.uniform() < 0.7) {
      spec.prefix = static_cast<int>(rng_.integer(0, 2));
      spec.prefix_tokens = static_cast<int>(rng_.integer(0, spec.prompt_tokens));
    }
    return spec;
  }

  // Calls from outside, during an iteration or not.
  void act(double probability) {
    while (arrived_ < requests_ && rng_.uniform() < probability) {
      SequenceSpec spec = random_spec();
      output_[spec.request] = spec.output_tokens;
      if (spec.output_tokens >= 2 && rng_.uniform() < 0.3) {
        const bool room = engine_.has_room(spec);
        ASSERT_EQ(room, plain_.has_room(spec)) << spec.request;
        if (!room) {
          ++seen_.refused;
          return;
        }
        held_[spec.request] = engine_.reserve(spec);
        plain_.reserve(spec);
      } else {
        spec.hand_over = spec.output_tokens >= 2 && rng_.uniform() < 0.2;
        engine_.enqueue(spec);
        plain_.enqueue(spec);
      }
      ++arrived_;
    }
    for (auto at = held_.begin(); at != held_.end();) {
      if (rng_.uniform() >= 0.3) {
        ++at;
        continue;
      }
      const auto [request, sequence] = *at;
      ASSERT_EQ(engine_.request_of(sequence), request);
      if (handed_.count(request) > 0 && rng_.uniform() < 0.6) {
        engine_.release(sequence);
        plain_.release(request);
        ++gone_;
      } else {
        engine_.join(sequence);
        plain_.join(request);
      }
      handed_.erase(request);
      at = held_.erase(at);
    }
  }

  void end(int iteration) {
    const auto& outcome = engine_.end();
    const auto wanted = plain_.end();
    ++seen_.iterations;
    ASSERT_EQ(sorted(outcome.finished), sorted(wanted.finished)) << iteration;
    if (options_.batching == planner::Batching::kStatic) {
      ASSERT_EQ(outcome.finished, wanted.finished) << iteration;
    }
    ASSERT_EQ(outcome.first_tokens, wanted.first_tokens) << iteration;
    ASSERT_EQ(outcome.decoded, wanted.decoded) << iteration;
    std::vector<int> prefilled;
    for (const SimulatedEngine::Sequence sequence : outcome.prefilled) {
      prefilled.push_back(engine_.request_of(sequence));
      held_[prefilled.back()] = sequence;
      handed_[prefilled.back()] = true;
    }
    ASSERT_EQ(prefilled, wanted.prefilled) << iteration;
    ASSERT_NO_FATAL_FAILURE(compare(iteration));
    for (const auto& [request, made] : wanted.made) ASSERT_EQ(made, output_[request]) << request;
    gone_ += static_cast<int>(outcome.finished.size());
  }

  void compare(int iteration) {
    ASSERT_EQ(engine_.free_blocks(), plain_.free_blocks()) << iteration;
    ASSERT_EQ(engine_.host_free_blocks(), plain_.host_free_blocks()) << iteration;
    ASSERT_EQ(engine_.swapped_tokens(), plain_.swapped_tokens) << iteration;
    ASSERT_EQ(engine_.preemptions(), plain_.preemptions) << iteration;
    ASSERT_EQ(engine_.prefix_hit_tokens(), plain_.prefix_hit_tokens) << iteration;
    ASSERT_EQ(engine_.waiting(), plain_.waiting()) << iteration;
    ASSERT_EQ(engine_.running(), plain_.running()) << iteration;
    ASSERT_EQ(engine_.swapped(), plain_.swapped()) << iteration;
    ASSERT_EQ(engine_.held(), plain_.held()) << iteration;
    ASSERT_EQ(engine_.pending_tokens(), plain_.pending_tokens()) << iteration;
    ASSERT_GE(engine_.free_blocks(), 0);
    ASSERT_LE(engine_.free_blocks(), options_.kv_blocks);
    ASSERT_GE(engine_.host_free_blocks(), 0);
    ASSERT_LE(engine_.host_free_blocks(), options_.host_blocks);
  }

  Rng& rng_;
  planner::EngineSettings options_;
  SimulatedEngine engine_;
  PlainEngine plain_;
  Seen& seen_;
  int requests_, arrived_ = 0, gone_ = 0;
  std::map<int, SimulatedEngine::Sequence> held_;  // by request: handed over or incoming
  std::map<int, bool> handed_;
  std::map<int, int> output_;  // tokens, by request
};

// Given random engines (every batching, preemption, prompt order and admission, with and without cached prefixes), short of
// pages, host pages, sequences and tokens in turn, under random arrivals, hand-overs and incoming caches; expects in every
// iteration the same batch, tokens, ends and pages as the plain engine; a valid number of pages; and all free at the end.
TEST(EngineRandom, IsThePlainEngine) {
  Rng rng(1, "engine");
  Seen seen;
  for (int round = 0; round < effort(600, 6000); ++round) {
    planner::EngineSettings options;
    options.batching = planner::kAllBatchings[static_cast<std::size_t>(round) % planner::kAllBatchings.size()];
    options.max_sequences = static_cast<int>(rng.integer(1, 8));
    options.max_batch_tokens = static_cast<int>(rng.integer(1, 60));
    options.block_tokens = static_cast<int>(rng.integer(1, 5));
    options.kv_blocks = rng.integer(10, 45);
    options.admission_reserve = rng.uniform() < 0.5 ? 0 : 0.1;
    options.preemption = any_of(rng, planner::kAllPreemptions);
    options.host_blocks = rng.uniform() < 0.8 ? rng.integer(0, 40) : 0;
    options.prefix_caching = rng.uniform() < 0.5;
    options.prompt_order = any_of(rng, planner::kAllPromptOrders);
    options.prompt_order_window = static_cast<int>(rng.integer(1, 6));
    options.admission = any_of(rng, planner::kAllDecodeAdmissions);
    options.schedules_ahead = rng.uniform() < 0.3;
    SCOPED_TRACE("round " + std::to_string(round) + ", " + to_string(options.batching) + ", " + to_string(options.preemption) +
                 ", " + to_string(options.prompt_order) + ", " + to_string(options.admission) +
                 (options.prefix_caching ? ", prefixes" : "") + (options.schedules_ahead ? ", ahead" : ""));
    Schedule schedule(rng, options, seen);
    ASSERT_NO_FATAL_FAILURE(schedule.run());
    ASSERT_FALSE(HasNonfatalFailure());
  }
  EXPECT_GT(seen.iterations, effort(10'000, 100'000));
  EXPECT_GT(seen.preemptions, effort(100, 2000));
  EXPECT_GT(seen.swapped_tokens, effort(100, 2000));
  EXPECT_GT(seen.prefix_hit_tokens, effort(100, 2000));
  EXPECT_GT(seen.refused, effort(50, 1000));
}

}  // namespace
}  // namespace windlass::sim
