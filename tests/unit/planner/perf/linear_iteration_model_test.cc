// Tests of the two papers' linear models: fits to samples that they generated, mixed batches, and coverage.
#include "planner/perf/linear_iteration_model.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

constexpr LinearPhase kPrefill{{.per_token_s = 2e-4, .constant_s = 0.03}, {1, 8, 100, 2000, 100, 8000}};
constexpr LinearPhase kDecode{{.per_token_s = 3e-7, .per_sequence_s = 4e-4, .constant_s = 0.02},
                              {1, 64, 100, 2000, 100, 64000}};

std::vector<IterationSample> samples_of(const IterationModel& model, std::uint64_t seed, int count) {
  Rng rng(seed, "samples");
  std::vector<IterationSample> samples;
  for (int i = 0; i < count; ++i) {
    const Batch prefill = prefill_batch(static_cast<int>(rng.integer(1, 8)), static_cast<double>(rng.integer(100, 2000)));
    const Batch decode = decode_batch(static_cast<int>(rng.integer(1, 64)), static_cast<double>(rng.integer(100, 2000)));
    samples.push_back({prefill, model.iteration_s(prefill)});
    samples.push_back({decode, model.iteration_s(decode)});
  }
  return samples;
}

// Given Aladdin's Eq. 2 and 3 by hand: 4 prompts of 500 tokens take k1 2000 + c1, 10 sequences of 300 (k2 300 + c2) 10 + c3.
TEST(LinearIterationModel, EvaluatesAladdin) {
  const LinearIterationModel model(kPrefill, kDecode, 1e5);
  EXPECT_NEAR(model.iteration_s(prefill_batch(4, 500)), 2e-4 * 2000 + 0.03, 1e-12);
  EXPECT_NEAR(model.iteration_s(decode_batch(10, 300)), (3e-7 * 300 + 4e-4) * 10 + 0.02, 1e-12);
  EXPECT_EQ(model.kv_capacity_tokens(), 1e5);
}

// Given Huawei's Eq. 3 and 4 by hand with all eight constants: b = 3, I = 200.
TEST(LinearIterationModel, EvaluatesHuawei) {
  LinearPhase prefill = kPrefill;
  LinearPhase decode = kDecode;
  prefill.coefficients = {1e-4, 2e-3, 3e-5, 0.01};
  decode.coefficients = {5e-7, 6e-4, 7e-6, 0.008};
  const LinearIterationModel model(prefill, decode, 0);
  EXPECT_NEAR(model.iteration_s(prefill_batch(3, 200)), 1e-4 * 3 * 200 + 2e-3 * 3 + 3e-5 * 200 + 0.01, 1e-12);
  EXPECT_NEAR(model.iteration_s(decode_batch(3, 200)), 5e-7 * 3 * 200 + 6e-4 * 3 + 7e-6 * 200 + 0.008, 1e-12);
}

// Given a mixed batch: both phases' times, with the smaller constant counted once; it is measured if both phases are.
TEST(LinearIterationModel, AMixedBatchPassesTheWeightsOnce) {
  const LinearIterationModel model(kPrefill, kDecode, 0);
  Batch mixed = prefill_batch(1, 1000);
  mixed.decode_sequences = 5;
  mixed.decode_context_tokens = 2500;
  EXPECT_NEAR(model.iteration_s(mixed), 2e-4 * 1000 + 3e-7 * 2500 + 4e-4 * 5 + 0.03, 1e-12);
  EXPECT_EQ(model.coverage(mixed), Coverage::kMeasured) << "both phases are within their ranges";
  mixed.decode_context_tokens = 5 * 3000;
  EXPECT_EQ(model.coverage(mixed), Coverage::kExtrapolated);
}

// Given samples from Aladdin's model: the fit returns its coefficients, and its ranges cover the samples and nothing more.
TEST(LinearIterationModel, FitFindsAladdin) {
  const LinearIterationModel truth(kPrefill, kDecode, 0);
  const auto samples = samples_of(truth, 1, 200);
  const auto fit = fit_linear_iteration(samples, LinearForm::kAladdin, 1234);
  ASSERT_TRUE(fit.ok()) << fit.error().message;
  EXPECT_NEAR(fit->model.prefill().coefficients.per_token_s, 2e-4, 1e-12);
  EXPECT_NEAR(fit->model.prefill().coefficients.constant_s, 0.03, 1e-10);
  EXPECT_EQ(fit->model.prefill().coefficients.per_sequence_s, 0);
  EXPECT_NEAR(fit->model.decode().coefficients.per_token_s, 3e-7, 1e-14);
  EXPECT_NEAR(fit->model.decode().coefficients.per_sequence_s, 4e-4, 1e-11);
  EXPECT_NEAR(fit->model.decode().coefficients.constant_s, 0.02, 1e-10);
  EXPECT_EQ(fit->model.kv_capacity_tokens(), 1234);
  EXPECT_LT(fit->prefill.cross_validated->mape, 1e-9);
  EXPECT_LT(fit->decode.cross_validated->mape, 1e-9);
  for (const IterationSample& sample : samples) EXPECT_EQ(fit->model.coverage(sample.batch), Coverage::kMeasured);
  EXPECT_EQ(fit->model.coverage(prefill_batch(9, 1000)), Coverage::kExtrapolated);
  EXPECT_EQ(fit->model.coverage(prefill_batch(1, 2500)), Coverage::kExtrapolated);
  EXPECT_EQ(fit->model.coverage(decode_batch(65, 500)), Coverage::kExtrapolated);
  EXPECT_EQ(fit->model.coverage(decode_batch(8, 50)), Coverage::kExtrapolated);
}

// Given samples from Huawei's model with noise of 2 %: its form predicts up to the noise, while Aladdin's cannot.
TEST(LinearIterationModel, FitFindsHuaweiThroughNoise) {
  LinearPhase prefill = kPrefill;
  LinearPhase decode = kDecode;
  prefill.coefficients = {1e-5, 4e-3, 3e-4, 0.01};
  decode.coefficients = {1e-7, 6e-4, 3e-5, 0.008};
  const LinearIterationModel truth(prefill, decode, 0);
  auto samples = samples_of(truth, 2, 300);
  Rng rng(3, "noise");
  for (IterationSample& sample : samples) sample.seconds *= 1 + 0.02 * rng.normal();
  const auto huawei = fit_linear_iteration(samples, LinearForm::kHuawei, 0);
  const auto aladdin = fit_linear_iteration(samples, LinearForm::kAladdin, 0);
  ASSERT_TRUE(huawei.ok() && aladdin.ok());
  EXPECT_LT(huawei->prefill.cross_validated->mape, 0.02);
  EXPECT_LT(huawei->decode.cross_validated->mape, 0.02);
  EXPECT_GT(aladdin->prefill.cross_validated->mape, 0.05);
  EXPECT_GT(aladdin->decode.cross_validated->mape, 0.05);
  EXPECT_NEAR(huawei->model.prefill().coefficients.per_mean_token_s, 3e-4, 1e-5);
  EXPECT_NEAR(huawei->model.decode().coefficients.per_mean_token_s, 3e-5, 1e-6);
}

// Given noisy fits of both forms: no coefficient is negative, so that more work never takes less time.
TEST(LinearIterationModel, MoreWorkNeverTakesLess) {
  const LinearIterationModel truth(kPrefill, kDecode, 0);
  for (std::uint64_t seed = 0; seed < effort(50U, 500U); ++seed) {
    auto samples = samples_of(truth, seed, 8);
    Rng rng(seed, "noise");
    for (IterationSample& sample : samples) sample.seconds *= rng.uniform(0.5, 1.5);
    const LinearForm form = seed % 2 == 0 ? LinearForm::kAladdin : LinearForm::kHuawei;
    const auto fit = fit_linear_iteration(samples, form, 0);
    ASSERT_TRUE(fit.ok());
    ASSERT_GE(fit->prefill.coefficients.minCoeff(), 0);
    ASSERT_GE(fit->decode.coefficients.minCoeff(), 0);
    ASSERT_LE(fit->model.iteration_s(decode_batch(4, 500)), fit->model.iteration_s(decode_batch(5, 500)));
    ASSERT_LE(fit->model.iteration_s(prefill_batch(4, 500)), fit->model.iteration_s(prefill_batch(4, 501)));
  }
}

// Given an unconstrained fit whose line crosses zero: the time is 0, not negative.
TEST(LinearIterationModel, NeverNegative) {
  LinearPhase prefill = kPrefill;
  prefill.coefficients = {.per_token_s = 1e-3, .constant_s = -1};
  EXPECT_EQ(LinearIterationModel(prefill, kDecode, 0).iteration_s(prefill_batch(1, 10)), 0);
}

// Given samples that mix phases, are empty, or are too few: errors that name the sample or the phase.
TEST(LinearIterationModel, NamesBadSamples) {
  Batch mixed = prefill_batch(1, 10);
  mixed.add_decode(5);
  const auto message = [](const std::vector<IterationSample>& samples) {
    const auto fit = fit_linear_iteration(samples, LinearForm::kAladdin, 0);
    return fit.ok() ? std::string() : fit.error().message;
  };
  EXPECT_NE(message({{mixed, 1}}).find("sample 0: must have a single phase (got 1 prefill and 1 decode sequences)"),
            std::string::npos);
  EXPECT_NE(message({{Batch{}, 1}}).find("sample 0: must have a single phase (got 0 prefill"), std::string::npos);
  EXPECT_NE(message({}).find("prefill: fit: samples: must be"), std::string::npos);
  EXPECT_NE(message({{prefill_batch(1, 10), 1}, {prefill_batch(1, 20), 1}}).find("decode: fit: samples: must be"),
            std::string::npos);
  EXPECT_NE(message({{prefill_batch(1, 10), 1}, {prefill_batch(1, 20), -1}}).find("sample 1: must have finite features"),
            std::string::npos);
}

// Given ranges of samples; expects the contexts and prompts that they cover. Given none; expects no bounds.
TEST(LinearIterationModel, SaysWhatWasMeasured) {
  LinearPhase prefill, decode;
  prefill.range = {1, 8, 36, 37, 36, 288};
  decode.range = {1, 8, 52, 60, 52, 416};
  const LinearIterationModel measured(prefill, decode, 0);
  EXPECT_EQ(measured.measured_contexts().least, 52);
  EXPECT_EQ(measured.measured_contexts().most, 60);
  EXPECT_EQ(measured.measured_prompts().most, 288);
  EXPECT_TRUE(std::isinf(LinearIterationModel({}, {}, 0).measured_contexts().most));
}

}  // namespace
}  // namespace windlass::planner
