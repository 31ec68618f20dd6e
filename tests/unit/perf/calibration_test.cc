// Online calibration against synthetic truths: it converges, passes outliers over, follows drift and changes, never learns from
// cold starts, and says how sure it is.
#include "planner/perf/calibration.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

class Base final : public IterationModel {
 public:
  double iteration_s(const Batch& batch) const override {
    return (batch.prefill_sequences > 0 ? 0.01 + 1e-4 * batch.prefill_tokens : 0) +
           (batch.decode_sequences > 0 ? 0.02 + 4e-4 * batch.decode_sequences + 1e-7 * batch.decode_context_tokens : 0);
  }
  Coverage coverage(const Batch& batch) const override {
    return batch.decode_sequences > 100 ? Coverage::kExtrapolated : Coverage::kMeasured;
  }
  double kv_capacity_tokens() const override { return 4711; }
  int pipeline_stages() const override { return 3; }
};

struct Truth {
  double scale = 1;
  double offset_s = 0;
  double noise = 0.03;  // relative to the model's time

  [[nodiscard]] double mean_s(const Batch& batch) const { return scale * Base().iteration_s(batch) + offset_s; }
  [[nodiscard]] double draw_s(const Batch& batch, Rng& rng) const {
    return mean_s(batch) + noise * Base().iteration_s(batch) * rng.normal();
  }
};

Batch random_decode(Rng& rng) {
  return decode_batch(static_cast<int>(rng.integer(1, 64)), static_cast<double>(rng.integer(100, 2000)));
}
Batch random_prefill(Rng& rng) {
  return prefill_batch(static_cast<int>(rng.integer(1, 4)), static_cast<double>(rng.integer(64, 2000)));
}

// Calibrates decode from `count` observations of a warm worker.
CalibrationState calibrate(CalibrationState state, const Truth& truth, int count, Rng& rng, const CalibrationOptions& options) {
  for (int i = 0; i < count; ++i) {
    const Batch batch = random_decode(rng);
    state = observe(std::move(state), Base(), {"w", batch, truth.draw_s(batch, rng)}, options).state;
  }
  return state;
}

// The largest relative error over batches across what is observed.
double worst_error(const CalibrationState& state, const Truth& truth) {
  const Base base;
  const CalibratedModel model(base, state);
  double worst = 0;
  for (const int sequences : {1, 8, 32, 64}) {
    const Batch batch = decode_batch(sequences, 1000);
    worst = std::max(worst, std::abs(model.iteration_s(batch) / truth.mean_s(batch) - 1));
  }
  return worst;
}

constexpr CalibrationOptions kWarm{.cold_observations = 0};

// Given 100 truths with noise of 3 %, 1,000 observations each of both phases: each phase finds its own correction to 2 %, and
// the noise.
TEST(Calibration, Converges) {
  const Base base;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed, "truth");
    const Truth prefill{rng.uniform(0.6, 1.8), rng.uniform(-0.002, 0.01)};
    const Truth decode{rng.uniform(0.6, 1.8), rng.uniform(-0.002, 0.01)};
    CalibrationState state = initial_calibration(kWarm);
    for (int i = 0; i < 1000; ++i) {
      const Batch p = random_prefill(rng);
      const Batch d = random_decode(rng);
      state = observe(std::move(state), base, {"w", p, prefill.draw_s(p, rng)}, kWarm).state;
      state = observe(std::move(state), base, {"w", d, decode.draw_s(d, rng)}, kWarm).state;
    }
    EXPECT_LT(worst_error(state, decode), 0.02) << "seed " << seed;
    const CalibratedModel model(base, state);
    for (const double tokens : {200.0, 1000.0, 4000.0}) {
      const Batch batch = prefill_batch(1, tokens);
      EXPECT_NEAR(model.iteration_s(batch) / prefill.mean_s(batch), 1, 0.02) << "seed " << seed;
    }
    EXPECT_NEAR(std::sqrt(state.decode.noise_variance), 0.03, 0.01) << "seed " << seed;
    EXPECT_GT(state.decode.learned, 950);
  }
}

// Given 300 truths, after 30 and after 500 observations: the claimed standard deviation of the corrected mean is about the true
// one (the mean of the squared error in its units lies near 1), and shrinks as observations come in.
TEST(Calibration, ConfidenceIsHonest) {
  const Base base;
  const Batch probe = decode_batch(20, 800);
  for (const int count : {30, 500}) {
    double squares = 0;
    double claimed = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      Rng rng(seed, "truth");
      const Truth truth{1 + 0.3 * rng.normal(), 0.005 * rng.normal()};
      const CalibrationState state = calibrate(initial_calibration(kWarm), truth, count, rng, kWarm);
      const CalibratedModel model(base, state);
      const CalibrationConfidence confidence = model.confidence(probe);
      const double error = model.iteration_s(probe) / truth.mean_s(probe) - 1;
      squares += error * error / (confidence.mean_deviation * confidence.mean_deviation) / 300;
      claimed += confidence.mean_deviation / 300;
    }
    EXPECT_GT(squares, 0.2) << count;
    EXPECT_LT(squares, 2.5) << count;
    EXPECT_LT(claimed, count == 30 ? 0.04 : 0.015) << count;
  }
}

// Given one in twenty observations 3 to 50 times too long: they are counted and passed over, and the correction stays within 2
// %.
TEST(Calibration, PassesOutliersOver) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed, "outliers");
    const Truth truth{1.2, 0.002};
    CalibrationState state = initial_calibration(kWarm);
    int outliers = 0;
    for (int i = 0; i < 2000; ++i) {
      const Batch batch = random_decode(rng);
      double seconds = truth.draw_s(batch, rng);
      const bool outlier = i > 50 && rng.uniform() < 0.05;
      if (outlier) seconds *= rng.uniform(3, 50);
      const CalibrationStep step = observe(std::move(state), Base(), {"w", batch, seconds}, kWarm);
      state = step.state;
      outliers += outlier ? 1 : 0;
      if (outlier) {
        EXPECT_EQ(step.learning, Learning::kOutlier) << "seed " << seed << " observation " << i;
      }
    }
    EXPECT_GE(state.decode.outliers, outliers);
    EXPECT_LE(state.decode.outliers, outliers + 10);
    EXPECT_EQ(state.decode.changes, 0);
    EXPECT_LT(worst_error(state, truth), 0.02) << "seed " << seed;
  }
}

// Given a truth that slows down by half over 4,000 observations: the correction is never more than 6 % behind.
TEST(Calibration, FollowsDrift) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed, "drift");
    CalibrationState state = calibrate(initial_calibration(kWarm), {1, 0}, 300, rng, kWarm);
    for (int i = 0; i < 40; ++i) {
      const Truth truth{1 + 0.5 * i / 39, 0};
      state = calibrate(std::move(state), truth, 100, rng, kWarm);
      ASSERT_LT(worst_error(state, truth), 0.06) << "seed " << seed << " at " << i;
    }
  }
}

// Given a worker that is suddenly twice as slow, or three times as fast: the first such observations are held for outliers,
// then the filter starts again, and 300 observations later it is within 3 %.
TEST(Calibration, ARunOfOutliersIsAChange) {
  for (const double scale : {2.0, 1.0 / 3}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Rng rng(seed, "change");
      CalibrationState state = calibrate(initial_calibration(kWarm), {1, 0}, 500, rng, kWarm);
      const Truth slow{scale, 0};
      const CalibrationState before = state;
      state = calibrate(std::move(state), slow, 5, rng, kWarm);
      EXPECT_EQ(state.decode.learned, before.decode.learned);
      EXPECT_EQ(state.decode.scale, before.decode.scale);
      state = calibrate(std::move(state), slow, 295, rng, kWarm);
      EXPECT_GE(state.decode.changes, 1);
      EXPECT_LT(worst_error(state, slow), 0.05) << "seed " << seed;
    }
  }
}

// Given a calibrated state and workers that start: none of their first 20 observations of a phase moves it, however slow; nor
// do any marked cold, before or after. The 21st does.
TEST(Calibration, NeverLearnsFromColdStarts) {
  Rng rng(1, "cold");
  const CalibrationOptions options;
  CalibrationState state = calibrate(initial_calibration(options), {1.1, 0.001}, 500, rng, options);
  ASSERT_GT(state.decode.learned, 400);
  for (int worker = 0; worker < 30; ++worker) {
    const std::string name = "new-" + std::to_string(worker);
    const CalibrationState before = state;
    for (int i = 0; i < 40; ++i) {
      const bool marked = i % 2 == 0;
      const Batch batch = random_decode(rng);
      const CalibrationStep step = observe(std::move(state), Base(), {name, batch, rng.uniform(0.0001, 30), marked}, options);
      ASSERT_EQ(step.learning, Learning::kCold);
      state = step.state;
    }
    CalibrationState expected = before;
    expected.decode.cold += 40;
    expected.decode.seen[name] = 20;
    ASSERT_EQ(state, expected);
    const Batch batch = random_decode(rng);
    state = observe(std::move(state), Base(), {name, batch, Truth{1.1, 0.001}.mean_s(batch)}, options).state;
    ASSERT_EQ(state.decode.learned, before.decode.learned + 1);
    ASSERT_EQ(observe(state, Base(), {name, batch, 5, true}, options).learning, Learning::kCold);
  }
}

// Given a worker that starts anew: forgotten, it is cold again, in both phases.
TEST(Calibration, AForgottenWorkerIsColdAgain) {
  const CalibrationOptions options{.cold_observations = 1};
  CalibrationState state = initial_calibration(options);
  const LatencyObservation decode{"w", decode_batch(4, 100), 0.03};
  const LatencyObservation prefill{"w", prefill_batch(1, 100), 0.03};
  for (const LatencyObservation& observation : {decode, prefill}) {
    CalibrationStep step = observe(std::move(state), Base(), observation, options);
    EXPECT_EQ(step.learning, Learning::kCold);
    step = observe(std::move(step.state), Base(), observation, options);
    EXPECT_EQ(step.learning, Learning::kLearned);
    state = std::move(step.state);
  }
  forget_worker(state, "w");
  EXPECT_EQ(observe(state, Base(), decode, options).learning, Learning::kCold);
  EXPECT_EQ(observe(state, Base(), prefill, options).learning, Learning::kCold);
}

// Given mixed batches, empty ones and times that are none: the state does not change.
TEST(Calibration, WhatSaysNothingIsNotLearnt) {
  const CalibrationState state = initial_calibration(kWarm);
  Batch mixed = prefill_batch(1, 100);
  mixed.add_decode(10);
  CalibrationStep step = observe(state, Base(), {"w", mixed, 0.1}, kWarm);
  EXPECT_EQ(step.learning, Learning::kMixed);
  EXPECT_EQ(step.state, state);
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    step = observe(state, Base(), {"w", decode_batch(1, 10), bad}, kWarm);
    EXPECT_EQ(step.learning, Learning::kInvalid);
    EXPECT_EQ(step.state, state);
  }
  EXPECT_EQ(observe(state, Base(), {"w", Batch{}, 1}, kWarm).learning, Learning::kInvalid);
}

// Given 200 streams of hostile times (over ten decades) and of one batch for ever: state and predictions stay finite, the
// covariance positive and never above the prior's.
TEST(Calibration, StaysWithinItsPrior) {
  const Base base;
  const CalibrationState prior = initial_calibration(kWarm);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, "hostile");
    CalibrationState state = prior;
    const Batch still = random_decode(rng);
    for (int i = 0; i < 500; ++i) {
      const Batch batch = seed % 2 == 0 ? still : random_decode(rng);
      const double seconds = seed % 2 == 0 ? Truth{1.4, 0}.draw_s(batch, rng) : std::pow(10, rng.uniform(-6, 4));
      state = observe(std::move(state), base, {"w", batch, seconds}, kWarm).state;
      const PhaseCalibration& phase = state.decode;
      ASSERT_TRUE(std::isfinite(phase.scale) && std::isfinite(phase.offset_s) && std::isfinite(phase.noise_variance));
      ASSERT_GT(phase.scale_variance, 0);
      ASSERT_GT(phase.offset_variance_s2, 0);
      ASSERT_GE(phase.scale_variance * phase.offset_variance_s2, phase.covariance_s * phase.covariance_s * (1 - 1e-9));
      ASSERT_LE(phase.scale_variance, prior.decode.scale_variance * (1 + 1e-9));
      ASSERT_LE(phase.offset_variance_s2, prior.decode.offset_variance_s2 * (1 + 1e-9));
      const double corrected = CalibratedModel(base, state).iteration_s(batch);
      ASSERT_TRUE(std::isfinite(corrected));
      ASSERT_GE(corrected, 0.05 * base.iteration_s(batch) * (1 - 1e-12));
    }
  }
}

// Given load that stands still at one batch: the claimed deviation there is small, and at a batch far from it much larger.
TEST(Calibration, IsUnsureWhereItHasNotBeen) {
  const Base base;
  Rng rng(4, "still");
  CalibrationState state = initial_calibration(kWarm);
  const Batch still = decode_batch(64, 2000);
  for (int i = 0; i < 1000; ++i)
    state = observe(std::move(state), base, {"w", still, Truth{1.4, 0}.draw_s(still, rng)}, kWarm).state;
  const CalibratedModel model(base, state);
  EXPECT_LT(model.confidence(still).mean_deviation, 0.01);
  EXPECT_GT(model.confidence(decode_batch(1, 10)).mean_deviation, 5 * model.confidence(still).mean_deviation);
}

// Given no observation: the model's own times, coverage, capacity and stages; nothing learnt, and a wide deviation.
TEST(CalibratedModel, BeginsAsTheModelItself) {
  const Base base;
  const CalibratedModel model(base, initial_calibration());
  Batch mixed = prefill_batch(2, 100);
  mixed.add_decode(10);
  for (const Batch& batch : {prefill_batch(2, 100), decode_batch(5, 10), mixed}) {
    EXPECT_DOUBLE_EQ(model.iteration_s(batch), base.iteration_s(batch));
    EXPECT_EQ(model.confidence(batch).learned, 0);
    EXPECT_GT(model.confidence(batch).mean_deviation, 0.4);
  }
  EXPECT_EQ(model.coverage(decode_batch(101, 10)), Coverage::kExtrapolated);
  EXPECT_EQ(model.kv_capacity_tokens(), 4711);
  EXPECT_EQ(model.pipeline_stages(), 3);
}

// Given different corrections of both phases: a mixed batch takes each in proportion to its phase's own time, and the worse
// confidence.
TEST(CalibratedModel, MixedBatchesTakeBothCorrections) {
  const Base base;
  CalibrationState state = initial_calibration();
  state.prefill.scale = 2;
  state.prefill.learned = 7;
  state.decode.scale = 3;
  state.decode.learned = 5;
  state.decode.scale_variance *= 100;
  const CalibratedModel model(base, state);
  Batch mixed = prefill_batch(1, 100);
  mixed.decode_sequences = 10;
  const double prefill = 0.01 + 1e-4 * 100;
  const double decode = 0.02 + 4e-4 * 10;
  EXPECT_NEAR(model.iteration_s(mixed), 2 * prefill + 3 * decode, 1e-12);
  EXPECT_EQ(model.confidence(mixed).learned, 5);
  EXPECT_EQ(model.confidence(mixed).mean_deviation, model.confidence(decode_batch(10, 0)).mean_deviation);
}

// Given a state with every field set: it comes back from its JSON text exactly.
TEST(CalibrationJson, ExactRoundTrip) {
  Rng rng(9, "json");
  CalibrationState state = calibrate(initial_calibration(), {1.1, 0.001}, 200, rng, {});
  state.prefill.outlier_run = -3;
  state.prefill.changes = 2;
  state.prefill.seen = {{"a", 1}, {"b/c", 20}};
  const std::string text = calibration_to_json(state).dump();
  const auto back = calibration_from_json(nlohmann::json::parse(text));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, state);
}

// Given JSON with a field missing, wrong, unknown or not finite: the path is named.
TEST(CalibrationJson, NamesMistakes) {
  const nlohmann::json good = calibration_to_json(initial_calibration());
  const auto message = [](const nlohmann::json& json) {
    const auto state = calibration_from_json(json);
    return state.ok() ? std::string() : state.error().message;
  };
  EXPECT_EQ(message(good), "");
  nlohmann::json bad = good;
  bad["prefill"].erase("scale");
  EXPECT_EQ(message(bad), "prefill.scale: missing");
  bad = good;
  bad["decode"]["noiseVariance"] = -1;
  EXPECT_EQ(message(bad), "decode.noiseVariance: found -1.0, must be a finite number of at least 0");
  bad = good;
  bad["decode"]["scale"] = "NaN";
  EXPECT_EQ(message(bad), "decode.scale: found \"NaN\", must be a finite number");
  bad = good;
  bad["decode"]["seen"] = {{"w", "x"}};
  EXPECT_NE(message(bad).find("decode.seen.w: found \"x\""), std::string::npos) << message(bad);
  bad = good;
  bad["extra"] = 1;
  EXPECT_NE(message(bad).find("extra: unknown field"), std::string::npos);
  bad = good;
  bad.erase("decode");
  EXPECT_EQ(message(bad), "decode: missing");
  EXPECT_NE(message(nlohmann::json::array()), "");
}

// Given copies of a state's JSON with a byte changed: each is refused with a message, or reads as a state that prints
// again.
TEST(CalibrationJson, ForeignBytes) {
  Rng rng(8, "fuzz");
  const std::string good = calibration_to_json(initial_calibration()).dump();
  int refused = 0;
  for (int round = 0; round < effort(1000, 10'000); ++round) {
    std::string text = good;
    text[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1))] =
        static_cast<char>(rng.integer(32, 126));
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) continue;
    const auto state = calibration_from_json(json);
    if (state.ok()) {
      EXPECT_EQ(*calibration_from_json(calibration_to_json(*state)), *state);
    } else {
      EXPECT_FALSE(state.error().message.empty());
      ++refused;
    }
  }
  EXPECT_GT(refused, effort(66, 1000));
}

// Given options out of range: the field is named.
TEST(CalibrationOptions, NamesMistakes) {
  EXPECT_TRUE(validate(CalibrationOptions{}).ok());
  EXPECT_TRUE(validate(kWarm).ok());
  EXPECT_EQ(validate({.forgetting = 1}).error().message,
            "calibration: forgetting: found 1, allowed is a number above 0 and below 1");
  EXPECT_NE(validate({.cold_observations = -1}).error().message.find("cold_observations"), std::string::npos);
  EXPECT_NE(
      validate({.outlier_deviations = std::numeric_limits<double>::quiet_NaN()}).error().message.find("outlier_deviations"),
      std::string::npos);
}

}  // namespace
}  // namespace windlass::planner
