// The calibrator, on pages of a worker that runs at a known multiple of the planner's model.
#include "controller/reconcile/calibrator.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/linear_iteration_model.h"

namespace windlass::controller {
namespace {

const Configuration kHere{"default", "llama3-8b", "VLLM", "h100", 1};
const planner::Lengths kLengths{512, 128};

planner::ModelShape shape() { return planner::model_shape_by_name("llama3-8b").value(); }

planner::AcceleratorSpec h100() {
  planner::AcceleratorSpec spec = planner::accelerator_by_name("h100-80gb").value();
  spec.name = "h100";
  return spec;
}

// A worker that serves a steady batch and whose iterations take `decode_scale` and `prefill_scale` times what the model says.
class LiveWorker {
 public:
  LiveWorker(const planner::IterationModel& model, double decode_scale, double prefill_scale)
      : model_(model), decode_scale_(decode_scale), prefill_scale_(prefill_scale) {}

  int batch = 8;
  double waiting = 0;

  // One second passes. `rng` may be nullptr: no noise.
  const WorkerPage& second(Rng* rng = nullptr) {
    const double noise = rng == nullptr ? 1 : std::max(0.5, 1 + 0.05 * rng->normal());
    const double decode_s = decode_scale_ * noise * model_.iteration_s(planner::decode_batch(batch, 512 + 0.5 * 128));
    const double prefill_s = prefill_scale_ * noise * model_.iteration_s(planner::prefill_batch(1, 512));
    // In a second: each request's prefill, then its gaps of one decode iteration and the others' share of prefills.
    const double service_s = batch * prefill_s + 127 * decode_s;
    const double requests = batch / service_s;
    const double gap_s = decode_s + (batch - 1) * prefill_s / 127;
    metrics::EngineMetrics& now = page_.metrics;
    now.engine = metrics::Engine::kVllm;
    now.requests_running = batch;
    now.requests_waiting = waiting;
    now.token_time = metrics::TokenTime::kGap;
    add(now.time_per_token, requests * 127 * gap_s, requests * 127);
    add(now.ttft, requests * (prefill_s + (batch > 1 ? decode_s : 0)), requests);
    now.prompt_tokens = now.prompt_tokens.value_or(0) + requests * 512;
    now.generation_tokens = now.generation_tokens.value_or(0) + requests * 128;
    page_.at_s += 1;
    return page_;
  }
  void restart() {
    const double at_s = page_.at_s;
    page_ = {};
    page_.at_s = at_s;
  }

 private:
  static void add(std::optional<metrics::EngineLatency>& latency, double sum_s, double count) {
    if (!latency) latency = metrics::EngineLatency{0, 0, std::nullopt};
    *latency->sum_s += sum_s;
    *latency->count += count;
  }

  const planner::IterationModel& model_;
  double decode_scale_, prefill_scale_;
  WorkerPage page_;
};

class CalibratorTest : public ::testing::Test {
 protected:
  const std::shared_ptr<const planner::IterationModel> model_ = planner_model(shape(), h100(), 1);
  Calibrator calibrator_;

  void run(LiveWorker& worker, int seconds, Rng* rng = nullptr, const std::string& uid = "w") {
    for (int i = 0; i < seconds; ++i) calibrator_.learn(kHere, uid, worker.second(rng), kLengths, *model_, nullptr);
  }
};

// Given a worker that decodes 1.5 times and prefills 1.2 times as long as the model says, with noise; after ten minutes the
// correction predicts its iterations within 5 percent.
TEST_F(CalibratorTest, FindsWhatAWorkerReallyTakes) {
  Rng rng(7, "noise");
  LiveWorker worker(*model_, 1.5, 1.2);
  for (const int batch : {4, 8, 16, 24}) {
    worker.batch = batch;
    run(worker, 150, &rng);
  }
  const Calibration* known = calibrator_.find(kHere);
  ASSERT_NE(known, nullptr);
  const planner::CalibratedModel corrected(*model_, known->of_planner);
  for (const int batch : {4, 8, 16, 24}) {
    const auto decode = planner::decode_batch(batch, 576);
    EXPECT_NEAR(corrected.iteration_s(decode) / (1.5 * model_->iteration_s(decode)), 1, 0.05) << batch;
  }
  const auto prefill = planner::prefill_batch(1, 512);
  EXPECT_NEAR(corrected.iteration_s(prefill) / (1.2 * model_->iteration_s(prefill)), 1, 0.05);
  const auto correction = calibrator_.correction(kHere);
  ASSERT_TRUE(correction);
  EXPECT_EQ(correction->accelerator, "h100");
  EXPECT_GT(correction->samples, 50);
  EXPECT_LT(correction->relative_error, 0.2);
}

// Given a worker in its first half minute, ten times as slow as it will be; nothing is learnt from it, nor after its restart.
TEST_F(CalibratorTest, ColdWorkersTeachNothing) {
  LiveWorker cold(*model_, 10, 10);
  run(cold, 30);
  EXPECT_FALSE(calibrator_.correction(kHere));
  LiveWorker warm(*model_, 1, 1);
  run(warm, 200, nullptr, "other");
  const auto before = calibrator_.correction(kHere);
  ASSERT_TRUE(before);
  warm.restart();
  LiveWorker& again = warm;
  run(again, 30, nullptr, "other");
  EXPECT_EQ(calibrator_.correction(kHere)->samples, before->samples);
}

// Given requests that wait inside the worker; TTFT then says nothing of prefills, and only decoding is learnt.
TEST_F(CalibratorTest, QueueingIsNoPrefillTime) {
  LiveWorker worker(*model_, 1.3, 1);
  worker.waiting = 3;
  run(worker, 200);
  const Calibration* known = calibrator_.find(kHere);
  ASSERT_NE(known, nullptr);
  EXPECT_GT(known->of_planner.decode.learned, 5);
  EXPECT_EQ(known->of_planner.prefill.learned, 0);
}

// Given a worker whose requests wait until much is known of its decoding, and of which a few odd prefills are seen then
// (prompts that its cache held); the planner's prefills stay as they are until there are as many observations of them.
TEST_F(CalibratorTest, WhatIsKnownOfDecodingSaysNothingOfPrefills) {
  LiveWorker worker(*model_, 1.3, 0.4);
  worker.waiting = 3;
  run(worker, 1200);
  worker.waiting = 0;
  run(worker, 50);
  ASSERT_GT(calibrator_.find(kHere)->of_planner.prefill.learned, 0);
  auto correction = calibrator_.correction(kHere);
  ASSERT_TRUE(correction);
  EXPECT_GE(correction->samples, 100);
  EXPECT_NE(correction->decode_scale, 1);
  EXPECT_EQ(correction->prefill_scale, 1);
  EXPECT_EQ(correction->prefill_offset_s, 0);
  run(worker, 1200);
  correction = calibrator_.correction(kHere);
  EXPECT_LT(correction->prefill_scale, 0.8);
}

// Given pages that come every eight seconds only, as they do of very many workers; windows last until they hold enough of them,
// and decoding is learnt.
TEST_F(CalibratorTest, SeldomPagesMakeLongerWindows) {
  LiveWorker worker(*model_, 1.5, 1);
  for (int i = 0; i < 200; ++i) {
    for (int second = 0; second < 7; ++second) static_cast<void>(worker.second());
    run(worker, 1);
  }
  ASSERT_NE(calibrator_.find(kHere), nullptr);
  EXPECT_GT(calibrator_.find(kHere)->of_planner.decode.learned, 20);
}

// Given a batch that swings between 2 and 20 inside every window; no batch can be named for its times, so nothing is learnt.
TEST_F(CalibratorTest, AnUnsteadyBatchTeachesNothing) {
  LiveWorker worker(*model_, 2, 2);
  for (int i = 0; i < 200; ++i) {
    worker.batch = i % 2 == 0 ? 2 : 20;
    run(worker, 1);
  }
  EXPECT_FALSE(calibrator_.correction(kHere));
}

// Given pages that are missing counters, hold zeros or go back in time; nothing is learnt and nothing breaks.
TEST_F(CalibratorTest, PoorPagesTeachNothing) {
  WorkerPage page;
  for (int second = 0; second < 100; ++second) {
    page.at_s = second % 7 == 0 ? 0 : second;
    page.metrics.requests_running = second % 2 == 0 ? std::optional<double>() : 4;
    page.metrics.time_per_token = metrics::EngineLatency{0, 0, std::nullopt};
    page.metrics.token_time = metrics::TokenTime::kGap;
    page.metrics.ttft = metrics::EngineLatency{std::nullopt, 5, std::nullopt};
    calibrator_.learn(kHere, "w", page, kLengths, *model_, nullptr);
  }
  EXPECT_FALSE(calibrator_.correction(kHere));
}

// Given a profile whose fit is twice the planner's model, before any worker has spoken; the planner's model is corrected to
// what the profile says, and what live workers say then goes on from there.
TEST_F(CalibratorTest, AProfileIsWhereItBegins) {
  const auto& linear = dynamic_cast<const planner::LinearIterationModel&>(*model_);
  planner::LinearPhase prefill = linear.prefill(), decode = linear.decode();
  for (planner::LinearPhase* phase : {&prefill, &decode}) {
    for (double planner::PhaseCoefficients::*one :
         {&planner::PhaseCoefficients::per_token_s, &planner::PhaseCoefficients::per_sequence_s,
          &planner::PhaseCoefficients::constant_s})
      phase->coefficients.*one *= 2;
  }
  const planner::LinearIterationModel twice(prefill, decode, 0);
  api::PerformanceProfile profile;
  profile.spec.source.rows = 40;
  calibrator_.adopt(kHere, profile, twice, *model_);
  const auto correction = calibrator_.correction(kHere);
  ASSERT_TRUE(correction);
  EXPECT_EQ(correction->samples, 40);
  const planner::CalibratedModel corrected(*model_, calibrator_.find(kHere)->of_planner);
  for (const auto& batch : {planner::decode_batch(8, 512), planner::prefill_batch(1, 700)}) {
    EXPECT_NEAR(corrected.iteration_s(batch) / twice.iteration_s(batch), 1, 1e-6);
  }
}

// Given what was learnt, written to a status and read back; the filter goes on with the same estimate and spread. A status that
// makes no sense leaves the model as it is.
TEST_F(CalibratorTest, AStatusIsReadBack) {
  LiveWorker worker(*model_, 1.4, 1.1);
  run(worker, 300);
  const planner::PhaseCalibration& learnt = calibrator_.find(kHere)->of_planner.decode;
  const planner::PhaseCalibration back = from_status(to_status(learnt));
  EXPECT_DOUBLE_EQ(back.scale, learnt.scale);
  EXPECT_DOUBLE_EQ(back.offset_s, learnt.offset_s);
  EXPECT_NEAR(back.noise_variance, learnt.noise_variance, 1e-12);
  EXPECT_EQ(back.learned, learnt.learned);
  api::PhaseCalibrationStatus bad = to_status(learnt);
  bad.scale_variance = -1;
  EXPECT_EQ(from_status(bad).scale, 1);
  bad = to_status(learnt);
  bad.scale = std::numeric_limits<double>::infinity();
  EXPECT_EQ(from_status(bad).scale, 1);
}

// Given a configuration that no service asks for any more and a worker that is gone; both are forgotten.
TEST_F(CalibratorTest, ForgetsWhatIsGone) {
  LiveWorker worker(*model_, 1.4, 1.1);
  run(worker, 300);
  calibrator_.keep({}, {kHere});
  EXPECT_TRUE(calibrator_.correction(kHere));
  EXPECT_TRUE(calibrator_.find(kHere)->of_planner.decode.seen.empty());
  calibrator_.keep({}, {});
  EXPECT_FALSE(calibrator_.correction(kHere));
}

}  // namespace
}  // namespace windlass::controller
