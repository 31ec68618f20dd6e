// Tests of learning from live iterations: from all kinds of wrong data sheets to the real times.
#include "planner/perf/iteration_estimate.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

// A data sheet: 100 ms for 256 prompt tokens, 12 ms per iteration, 0.5 ms per request at 512 tokens.
LinearCoefficients sheet() {
  LinearCoefficients c;
  c.k1 = 0.1 / 256;
  c.c1 = c.c3 = 0.012;
  c.k2 = 0.0002 / 512;
  c.c2 = 0.0003;
  c.kv_capacity_tokens = 1e5;
  return c;
}

// The real times, as multiples of the data sheet, of constant, request and prompt token.
struct RealTimes {
  double constant = 1, request = 1, token = 1, prompt_s = 0;

  [[nodiscard]] double seconds(const IterationContent& content) const {
    const LinearCoefficients c = sheet();
    return content.iterations * constant * c.c3 + content.batch * request * (c.k2 * content.context_tokens + c.c2) +
           content.prompt_tokens * token * c.k1 + content.prompts * prompt_s;
  }
};

IterationObservation seen(const RealTimes& truth, const IterationContent& content, double factor = 1) {
  IterationObservation observation{content, factor * truth.seconds(content), 1, 0};
  observation.decodes = content.batch > 0;
  return observation;
}

// Mixed iterations of a worker at changing loads.
IterationEstimate taught(const RealTimes& truth, int observations, std::uint64_t seed) {
  Rng rng(seed, "estimate");
  IterationEstimate estimate;
  for (int i = 0; i < observations; ++i) {
    const double prompts = i % 2 == 0 ? 0 : rng.uniform(0, 0.3);
    const IterationContent content{1, rng.uniform(1, 20), rng.uniform(300, 900), prompts * rng.uniform(200, 400), prompts};
    static_cast<void>(learn(estimate, sheet(), seen(truth, content, 1 + 0.05 * rng.normal()), 5));
  }
  return estimate;
}

// Given decodes that were measured at a context of 52 tokens only, by a fit that counts all of a request's time for its
// context, while the data sheet counts most of it for the request; expects the measured time there and the data sheet's growth
// beyond, also with much longer contexts.
TEST(IterationEstimate, ContextsThatWereNotMeasuredGrowAsByTheDataSheet) {
  class OneContext final : public LatencyModel {
   public:
    [[nodiscard]] double prefill_s(double tokens) const override { return 0.004 * tokens; }
    [[nodiscard]] double decode_s(double batch, double context) const override { return 0.04 + 0.0002 * batch * context; }
    [[nodiscard]] double kv_capacity_tokens() const override { return 1e5; }
  };
  const ReferenceSizes sizes = reference_sizes({52, 52}, {36, 288});
  EXPECT_EQ(sizes.context_tokens, 52);
  EXPECT_EQ(sizes.short_prompt, 128);
  EXPECT_EQ(sizes.long_prompt, 288);
  const LinearModel line(estimated(sheet(), estimate_from(sheet(), OneContext(), 0.02, 40, 8, sizes)));
  EXPECT_NEAR(line.decode_s(8, 52), 0.04 + 0.0002 * 8 * 52, 1e-4);
  const double growth = (sheet().k2 * 512 + sheet().c2) / (sheet().k2 * 52 + sheet().c2);
  EXPECT_NEAR(line.decode_s(8, 512), 0.04 + growth * 0.0002 * 8 * 52, 1e-4);
  EXPECT_NEAR(line.prefill_s(100), 0.4, 1e-3);
}

// Given no range, and prompts of a single size; expects the usual sizes. Given other ranges; expects sizes within them.
TEST(IterationEstimate, ReferenceSizesNeedARange) {
  EXPECT_EQ(reference_sizes({}, {}).context_tokens, 512);
  EXPECT_EQ(reference_sizes({}, {}).long_prompt, 1024);
  EXPECT_EQ(reference_sizes({2000, 8000}, {100, 100}).context_tokens, 2000);
  EXPECT_EQ(reference_sizes({2000, 8000}, {100, 100}).short_prompt, 128);
  for (const TokenRange prompts : {TokenRange{2000, 8000}, TokenRange{16, 100}, TokenRange{36, 200}}) {
    const ReferenceSizes sizes = reference_sizes({}, prompts);
    EXPECT_GE(sizes.short_prompt, prompts.least);
    EXPECT_GE(sizes.long_prompt, 2 * sizes.short_prompt);
    EXPECT_LE(sizes.long_prompt, prompts.most);
  }
}

// Given real times of 0.2 to 5 times the data sheet in each term separately, with noise of 5 %; expects decode times at
// observed loads within 10 % after sixty observations.
TEST(IterationEstimate, FindsEveryTruth) {
  for (const double constant : {0.2, 1.0, 5.0}) {
    for (const double request : {0.2, 1.0, 5.0}) {
      for (const double token : {0.2, 1.0, 5.0}) {
        const RealTimes truth{constant, request, token, 0};
        const IterationEstimate estimate = taught(truth, 60, 3);
        const LinearModel believed(estimated(sheet(), estimate));
        for (const double batch : {2.0, 10.0, 18.0})
          EXPECT_NEAR(believed.decode_s(batch, 600) / truth.seconds({1, batch, 600, 0, 0}), 1, 0.1)
              << constant << ' ' << request << ' ' << token;
      }
    }
  }
}

// Given four iterations that a worker measured itself, two prompts and two batches; expects decoding within 3 % and prefill
// within 5 % immediately.
TEST(IterationEstimate, TwoSecondsOutweighTheDataSheet) {
  for (const double decode : {0.2, 1.0, 4.0}) {
    for (const double prefill : {0.2, 1.0, 4.0}) {
      const RealTimes truth{decode, decode, prefill, 0.002};
      IterationEstimate estimate;
      for (const IterationContent& content : {IterationContent{1, 0, 0, 32, 1}, IterationContent{1, 0, 0, 256, 1},
                                              IterationContent{1, 1, 256, 0, 0}, IterationContent{1, 8, 256, 0, 0}}) {
        IterationObservation observation = seen(truth, content);
        observation.noise_deviation = 0.03;
        EXPECT_EQ(learn(estimate, sheet(), observation, 0), Learnt::kLearnt);
      }
      const LinearModel believed(estimated(sheet(), estimate));
      EXPECT_NEAR(believed.decode_s(6, 512) / truth.seconds({1, 6, 512, 0, 0}), 1, 0.03) << decode << ' ' << prefill;
      EXPECT_NEAR(believed.prefill_s(200) / truth.seconds({1, 0, 0, 200, 1}), 1, 0.05) << decode << ' ' << prefill;
    }
  }
}

// Given one load over and over; expects that load to be known, the spread at another load to stay wide, and no term to be
// negative or to diverge.
TEST(IterationEstimate, OneLoadTeachesOnlyThatLoad) {
  const RealTimes truth{0.2, 5, 1.5, 0};
  Rng rng(5, "one load");
  IterationEstimate estimate;
  const IterationContent content{1, 16, 600, 60, 0.12};
  for (int i = 0; i < 500; ++i) static_cast<void>(learn(estimate, sheet(), seen(truth, content, 1 + 0.05 * rng.normal()), 5));
  const LinearModel believed(estimated(sheet(), estimate));
  const LinearCoefficients c = estimated(sheet(), estimate);
  EXPECT_NEAR((believed.decode_s(16, 600) + 60 * c.k1 + 0.12 * (c.c1 - c.c3)) / truth.seconds(content), 1, 0.03);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(estimate.mean[i], 0);
    EXPECT_LE(estimate.mean[i], 20);
  }
  EXPECT_GT(decode_deviation_s(sheet(), estimate, 64, 600), decode_deviation_s(sheet(), estimate, 16, 600));
  EXPECT_GT(UpperBoundModel(sheet(), estimate).decode_s(64, 600), believed.decode_s(64, 600));
}

// Given a known worker and single observations three times as long; expects each to be ignored and counted. Given that it is
// twice as slow from then on; expects a change after three of them, and the new figures within 10 % after ten.
TEST(IterationEstimate, AnOutlierIsNoChange) {
  const RealTimes truth;
  IterationEstimate estimate = taught(truth, 100, 9);
  const IterationContent content{1, 8, 600, 20, 0.05};
  EXPECT_EQ(learn(estimate, sheet(), seen(truth, content, 3), 5), Learnt::kOutlier);
  EXPECT_EQ(learn(estimate, sheet(), seen(truth, content), 5), Learnt::kLearnt);
  EXPECT_EQ(learn(estimate, sheet(), seen(truth, content, 3), 5), Learnt::kOutlier);
  EXPECT_EQ(learn(estimate, sheet(), seen(truth, content, 0.2), 5), Learnt::kOutlier);  // on the other side, so no run
  EXPECT_EQ(estimate.outliers, 3);
  EXPECT_EQ(learn(estimate, sheet(), seen(truth, content), 5), Learnt::kLearnt);
  std::vector<Learnt> after;
  Rng rng(4, "slower");
  for (int i = 0; i < 10; ++i) {
    const IterationContent now{1, rng.uniform(2, 16), 600, rng.uniform(0, 40), 0.05};
    after.push_back(learn(estimate, sheet(), seen(truth, now, 2), 5));
  }
  EXPECT_EQ(after[2], Learnt::kChange);
  EXPECT_EQ(estimate.changes, 1);
  EXPECT_NEAR(LinearModel(estimated(sheet(), estimate)).decode_s(8, 600) / (2 * truth.seconds({1, 8, 600, 0, 0})), 1, 0.1);
}

// Given workers that are up to two thousand times faster than their data sheet, which is more than an estimate may say, and
// windows every few seconds; expects the estimate to stay in use once it is, after the first five, so that no plan falls back
// to the data sheet.
TEST(IterationEstimate, StaysInUseFarFromTheDataSheet) {
  const ModelShape shape = testing::chat_service().shape.value();
  const LinearCoefficients base = linear_coefficients(shape, testing::h100(), 1, EngineType::kWindlass);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed, "far");
    const double constant = rng.uniform(0.0005, 0.002), request = rng.uniform(0.0005, 0.01), token = rng.uniform(0.0005, 0.002);
    std::vector<WorkerEstimate> estimates = {{"h100", 1, false, {}}};
    bool in_use = false;
    for (int i = 0; i < 200; ++i) {
      const double prompts = rng.uniform(0, 0.2);
      const IterationContent content{1, rng.uniform(0.9, 1.3), rng.uniform(20, 60), prompts * 32, prompts};
      const double seconds = constant * base.c3 + content.batch * request * (base.k2 * content.context_tokens + base.c2) +
                             content.prompt_tokens * token * base.k1;
      IterationObservation observation{content, seconds * (1 + 0.1 * rng.normal()), 1, 0};
      observation.decodes = true;
      static_cast<void>(learn(estimates.front().estimate, base, observation, rng.uniform(0, 8)));
      const bool believed =
          believed_coefficients(shape, testing::h100(), 1, EngineType::kWindlass, estimates).c3 < 0.1 * base.c3;
      ASSERT_TRUE(believed || !in_use) << "seed " << seed << ", observation " << i;
      in_use = believed && (in_use || i >= 5);
    }
    EXPECT_TRUE(in_use) << "seed " << seed;
  }
}

// Given invalid observations; expects them to be refused and nothing to change.
TEST(IterationEstimate, InvalidObservationsTeachNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  IterationEstimate estimate = taught({}, 10, 1);
  const IterationEstimate before = estimate;
  for (const IterationObservation& observation :
       {IterationObservation{{1, 4, 512, 0, 0}, 0, 1, 0}, IterationObservation{{1, 4, 512, 0, 0}, -1, 1, 0},
        IterationObservation{{1, 4, 512, 0, 0}, nan, 1, 0}, IterationObservation{{1, nan, 512, 0, 0}, 0.01, 1, 0},
        IterationObservation{{0, 0, 512, 0, 0}, 0.01, 1, 0}, IterationObservation{{1, -4, 512, 0, 0}, 0.01, 1, 0},
        IterationObservation{{1, 4, 512, 0, 0}, 1e9, 1, 0}, IterationObservation{{1, 4, 512, 0, 0}, 0.01, 1, nan}}) {
    EXPECT_EQ(learn(estimate, sheet(), observation, 5), Learnt::kInvalid);
    EXPECT_EQ(estimate, before);
  }
  EXPECT_EQ(learn(estimate, LinearCoefficients{}, seen({}, {1, 4, 512, 0, 0}), 5), Learnt::kInvalid);
}

// Given estimates of one class at two numbers of GPUs; expects the requested one, otherwise the next below, otherwise the next
// above; for another class none.
TEST(IterationEstimate, TheNearestOfTheClassCounts) {
  const IterationEstimate known = taught({}, 10, 1);
  const std::vector<WorkerEstimate> estimates = {{"a", 2, false, known}, {"a", 4, false, known}, {"b", 1, false, {}}};
  EXPECT_EQ(find_estimate(estimates, "a", 4)->gpus_per_worker, 4);
  EXPECT_EQ(find_estimate(estimates, "a", 3)->gpus_per_worker, 2);
  EXPECT_EQ(find_estimate(estimates, "a", 8)->gpus_per_worker, 4);
  EXPECT_EQ(find_estimate(estimates, "a", 1)->gpus_per_worker, 2);
  EXPECT_EQ(find_estimate(estimates, "b", 1), nullptr);
  EXPECT_EQ(find_estimate(estimates, "c", 1), nullptr);
}

// Given earlier and present beliefs about a worker; expects the larger factor of the two phases, in either direction, and 1 if
// uncertain.
TEST(IterationEstimate, SaysHowFarItHasMoved) {
  const planner::Service service = testing::chat_service();
  const LinearCoefficients base = linear_coefficients(*service.shape, testing::h100(), 1, EngineType::kWindlass);
  const auto now = [&](double prefill, double decode) {
    return testing::measured(service, testing::h100(), 1, prefill, decode).estimate;
  };
  EXPECT_NEAR(moved_by(base, base, now(1, 3)), 3, 0.1);
  EXPECT_NEAR(moved_by(base, base, now(0.5, 1.2)), 2, 0.2);
  EXPECT_NEAR(moved_by(estimated(base, now(1, 3)), base, now(1, 1)), 3, 0.1);
  EXPECT_NEAR(moved_by(estimated(base, now(1, 3)), base, now(1, 3)), 1, 0.01);
  IterationEstimate unsure = now(1, 3);
  unsure.covariance.fill(1);
  EXPECT_EQ(moved_by(base, base, unsure), 1);
  EXPECT_EQ(moved_by(base, base, {}), 1);
}

}  // namespace
}  // namespace windlass::planner
