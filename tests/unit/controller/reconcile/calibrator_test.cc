// The calibrator, on pages of a worker that runs at a known multiple of the planner's model.
#include "controller/reconcile/calibrator.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/linear_iteration_model.h"
#include "planner/perf/linear_model.h"

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

// A worker with a steady batch whose iterations take `decode_scale` and `prefill_scale` times the model's time.
class LiveWorker {
 public:
  LiveWorker(const planner::LinearCoefficients& sheet, double decode_scale, double prefill_scale)
      : model_(sheet), decode_scale_(decode_scale), prefill_scale_(prefill_scale) {}

  int batch = 8;
  double waiting = 0;

  // Lets one second pass. `rng`: nullptr for no noise.
  const WorkerPage& second(Rng* rng = nullptr) {
    const double noise = rng == nullptr ? 1 : std::max(0.5, 1 + 0.05 * rng->normal());
    const double decode_s = decode_scale_ * noise * model_.decode_s(batch, 512 + 0.5 * 128);
    const double prefill_s = prefill_scale_ * noise * model_.prefill_s(512);
    // Per second: each request's prefill while the others decode, and its gaps, extended by others' prompts.
    const double prompt_s = prefill_s - prefill_scale_ * model_.prefill_s(0);
    const double gap_s = decode_s + (batch - 1) * prompt_s / 127;
    const double requests = batch / (prefill_s + 127 * gap_s);
    metrics::EngineMetrics& now = page_.metrics;
    now.engine = metrics::EngineKind::kVllm;
    now.requests_running = batch;
    now.requests_waiting = waiting;
    now.token_time = metrics::TokenTime::kGap;
    add(now.time_per_token, requests * 127 * gap_s, requests * 127);
    add(now.ttft, requests * (batch > 1 ? prompt_s + 1.5 * decode_s : prefill_s), requests);
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
    if (!latency) latency = metrics::EngineLatency{0, 0};
    *latency->sum_s += sum_s;
    *latency->count += count;
  }

  planner::LinearModel model_;
  double decode_scale_, prefill_scale_;
  WorkerPage page_;
};

class CalibratorTest : public ::testing::Test {
 protected:
  const planner::LinearCoefficients sheet_ = planner::linear_coefficients(shape(), h100(), 1, planner::EngineType::kWindlass);
  Calibrator calibrator_;

  void run(LiveWorker& worker, int seconds, Rng* rng = nullptr, const std::string& uid = "w") {
    for (int i = 0; i < seconds; ++i) calibrator_.learn(kHere, uid, worker.second(rng), kLengths, sheet_);
  }
  [[nodiscard]] planner::LinearModel believed() const {
    return planner::LinearModel(planner::estimated(sheet_, calibrator_.find(kHere)->learner.estimate()));
  }
};

// Given workers that decode and prefill at any of 0.2 to 4 times their data sheet, with noise, and pages like vLLM's; expects
// both within 7 % after two minutes at four batch sizes.
TEST_F(CalibratorTest, FindsAWorkersRealTimes) {
  for (const double decode : {0.2, 1.0, 4.0}) {
    for (const double prefill : {0.2, 1.0, 4.0}) {
      calibrator_ = {};
      Rng rng(7, "noise");
      LiveWorker worker(sheet_, decode, prefill);
      for (const int batch : {4, 8, 16, 24}) {
        worker.batch = batch;
        run(worker, 30, &rng);
      }
      const planner::LinearModel sheet(sheet_);
      for (const int batch : {4, 8, 16, 24})
        EXPECT_NEAR(believed().decode_s(batch, 576) / (decode * sheet.decode_s(batch, 576)), 1, 0.07)
            << decode << ' ' << prefill;
      // A prompt joins an iteration, whose constant is that of decoding.
      const double prompt_s = prefill * 512 * sheet_.k1 + decode * sheet_.c3;
      EXPECT_NEAR(believed().prefill_s(512) / prompt_s, 1, 0.15) << decode << ' ' << prefill;
      const auto estimate = calibrator_.estimate(kHere);
      ASSERT_TRUE(estimate);
      EXPECT_EQ(estimate->accelerator, "h100");
      EXPECT_FALSE(estimate->from_profile);
      EXPECT_LE(estimate->estimate.largest_batch, 24);
    }
  }
}

// A worker of one phase: `per_s` iterations a second of this content. `received`: first tokens a second from prefill workers.
void phased_second(WorkerPage& page, double per_s, const planner::IterationContent& content, double seconds, double received) {
  metrics::EngineMetrics& now = page.metrics;
  now.engine = metrics::EngineKind::kWindlass;
  const auto add = [](std::optional<metrics::EngineLatency>& latency, double sum_s, double count) {
    if (!latency) latency = metrics::EngineLatency{0, 0};
    *latency->sum_s += sum_s;
    *latency->count += count;
  };
  add(now.iteration, per_s * seconds, per_s);
  add(now.prefill, per_s * content.prompts * seconds, per_s * content.prompts);
  add(now.ttft, received, received);
  now.prompt_tokens = now.prompt_tokens.value_or(0) + per_s * content.prompt_tokens;
  now.generation_tokens = now.generation_tokens.value_or(0) + per_s * content.batch + received;
  page.at_s += 1;
}

// Given prefill workers at three times the data sheet and decode workers at twice, to which first tokens come from others;
// expects both phases in one estimate. Given a decode worker that does not count iterations; expects nothing to be learned.
TEST_F(CalibratorTest, WorkersOfOnePhaseTeachIt) {
  WorkerPage prefill, decode;
  for (int second = 0; second < 120; ++second) {
    const double batch = 8 + 8 * (second / 30), prompts = 1 + second / 60;
    const planner::IterationContent prompt{1, 0, 0, 512 * prompts, prompts}, tokens{1, batch, 576, 0, 0};
    phased_second(prefill, 4, prompt, 2 * sheet_.c3 + 3 * sheet_.k1 * prompt.prompt_tokens, 0);
    phased_second(decode, 20, tokens, 2 * (sheet_.c3 + batch * (sheet_.k2 * 576 + sheet_.c2)), 10);
    calibrator_.learn(kHere, "p", prefill, kLengths, sheet_, dispatch::Role::kPrefill);
    calibrator_.learn(kHere, "d", decode, kLengths, sheet_, dispatch::Role::kDecode);
  }
  const planner::LinearModel sheet(sheet_);
  EXPECT_NEAR(believed().decode_s(16, 576) / sheet.decode_s(16, 576), 2, 0.05);
  EXPECT_NEAR(believed().prefill_s(512) / (2 * sheet_.c3 + 3 * 512 * sheet_.k1), 1, 0.05);

  calibrator_ = {};
  LiveWorker other(sheet_, 2, 2);
  for (int i = 0; i < 60; ++i) calibrator_.learn(kHere, "v", other.second(), kLengths, sheet_, dispatch::Role::kDecode);
  EXPECT_EQ(calibrator_.find(kHere), nullptr);
}

// Given a worker in its first seconds, ten times slower than later; expects nothing to be learned from it, nor right after its
// restart.
TEST_F(CalibratorTest, ColdWorkersTeachNothing) {
  LiveWorker cold(sheet_, 10, 10);
  run(cold, 15);
  EXPECT_FALSE(calibrator_.estimate(kHere));
  LiveWorker warm(sheet_, 1, 1);
  run(warm, 60, nullptr, "other");
  const auto before = calibrator_.estimate(kHere);
  ASSERT_TRUE(before);
  warm.restart();
  run(warm, 15, nullptr, "other");
  EXPECT_EQ(calibrator_.estimate(kHere)->estimate.samples, before->estimate.samples);
}

// Given a batch that varies between 2 and 20 within every window; expects decoding within 10 %: means are as good as steady
// values.
TEST_F(CalibratorTest, UnsteadyWindowsCarryInformation) {
  LiveWorker worker(sheet_, 2, 1);
  for (int i = 0; i < 100; ++i) {
    worker.batch = i % 2 == 0 ? 2 : 20;
    run(worker, 1);
  }
  ASSERT_TRUE(calibrator_.estimate(kHere));
  EXPECT_NEAR(believed().decode_s(16, 576) / (2 * planner::LinearModel(sheet_).decode_s(16, 576)), 1, 0.1);
}

// Given pages only every eight seconds, as with very many workers; expects longer windows, and decoding to be learned.
TEST_F(CalibratorTest, RarePagesMakeLongerWindows) {
  LiveWorker worker(sheet_, 1.5, 1);
  for (int i = 0; i < 40; ++i) {
    for (int second = 0; second < 7; ++second) static_cast<void>(worker.second());
    run(worker, 1);
  }
  ASSERT_TRUE(calibrator_.estimate(kHere));
  EXPECT_GT(calibrator_.estimate(kHere)->estimate.samples, 8);
}

// Given pages with missing counters, with zeros or with times that go back; expects nothing to be learned.
TEST_F(CalibratorTest, PoorPagesTeachNothing) {
  WorkerPage page;
  for (int second = 0; second < 100; ++second) {
    page.at_s = second % 7 == 0 ? 0 : second;
    page.metrics.requests_running = second % 2 == 0 ? std::optional<double>() : 4;
    page.metrics.time_per_token = metrics::EngineLatency{0, 0};
    page.metrics.token_time = metrics::TokenTime::kGap;
    page.metrics.ttft = metrics::EngineLatency{std::nullopt, 5};
    calibrator_.learn(kHere, "w", page, kLengths, sheet_);
  }
  EXPECT_FALSE(calibrator_.estimate(kHere));
}

// Given a profile whose fit is twice the data sheet, and no worker yet; expects its values to be used immediately. The profile
// changes: expects the new one. Its status says that live workers take half as long again: expects that factor on top.
TEST_F(CalibratorTest, StartsFromAProfile) {
  const auto fit = [&](double times) {
    return planner::LinearIterationModel(planner::LinearPhase{{times * sheet_.k1, 0, 0, times * sheet_.c1}, {}},
                                         planner::LinearPhase{{times * sheet_.k2, times * sheet_.c2, 0, times * sheet_.c3}, {}},
                                         0);
  };
  const auto expect_times = [&](double times) {
    const planner::LinearModel sheet(sheet_);
    EXPECT_NEAR(believed().decode_s(8, 512) / sheet.decode_s(8, 512), times, 0.02 * times);
    EXPECT_NEAR(believed().prefill_s(700) / sheet.prefill_s(700), times, 0.02 * times);
  };
  api::PerformanceProfile profile;
  profile.metadata.uid = "p";
  profile.metadata.generation = 1;
  profile.spec.source.rows = 40;
  calibrator_.adopt(kHere, profile, fit(2), sheet_);
  const auto estimate = calibrator_.estimate(kHere);
  ASSERT_TRUE(estimate);
  EXPECT_TRUE(estimate->from_profile);
  EXPECT_EQ(estimate->estimate.samples, 40);
  expect_times(2);
  calibrator_.adopt(kHere, profile, fit(7), sheet_);  // the same generation: the estimate stays
  expect_times(2);
  profile.metadata.generation = 2;
  calibrator_.adopt(kHere, profile, fit(3), sheet_);
  expect_times(3);
  profile.metadata.generation = 3;
  profile.status.calibration.prefill.samples = profile.status.calibration.decode.samples = 9;
  profile.status.calibration.prefill.scale = profile.status.calibration.decode.scale = 1.5;
  calibrator_.adopt(kHere, profile, fit(3), sheet_);
  expect_times(4.5);
}

// Given a profile measured at a context of 52 tokens, where its fit is right, and counts all time for the context; expects that
// time there. A status written from it, and read after a restart, changes nothing.
TEST_F(CalibratorTest, AShortContextSurvivesARestart) {
  planner::LinearPhase prefill{{sheet_.k1, 0, 0, sheet_.c1}, {1, 8, 36, 288, 36, 288}};
  planner::LinearPhase decode{{1e-4, 0, 0, 0.03}, {1, 8, 52, 52, 52, 416}};
  const planner::LinearIterationModel fit(prefill, decode, 0);
  api::PerformanceProfile profile;
  profile.metadata.uid = "p";
  profile.metadata.generation = 1;
  profile.spec.source.rows = 40;
  calibrator_.adopt(kHere, profile, fit, sheet_);
  const auto decode_s = [&] { return believed().decode_s(8, 52); };
  EXPECT_NEAR(decode_s(), 0.03 + 8 * 52e-4, 1e-3);
  profile.status.calibration = to_status(*calibrator_.find(kHere), fit, "2026-11-30T00:00:00Z");
  EXPECT_NEAR(profile.status.calibration.decode.scale, 1, 0.01);
  profile.metadata.generation = 2;
  calibrator_.adopt(kHere, profile, fit, sheet_);
  EXPECT_NEAR(decode_s(), 0.03 + 8 * 52e-4, 2e-3);
}

// Given live measurements of a profile's configuration; expects its status to hold the ratio. An invalid status counts as none.
TEST_F(CalibratorTest, AStatusHoldsTheLiveWorkersRatio) {
  const planner::LinearIterationModel fit(planner::LinearPhase{{sheet_.k1, 0, 0, sheet_.c1}, {}},
                                          planner::LinearPhase{{sheet_.k2, sheet_.c2, 0, sheet_.c3}, {}}, 0);
  LiveWorker worker(sheet_, 1.4, 1.1);
  for (const int batch : {2, 8, 16, 8}) {
    worker.batch = batch;
    run(worker, 60);
  }
  const api::CalibrationStatus status = to_status(*calibrator_.find(kHere), fit, "2026-01-31T10:00:00Z");
  EXPECT_NEAR(status.decode.scale, 1.4, 0.05);
  EXPECT_NEAR(status.prefill.scale, 1.1, 0.15);
  EXPECT_GT(status.decode.samples, 5);
  EXPECT_EQ(status.last_update_time, "2026-01-31T10:00:00Z");
  for (const double scale : {-1.0, 0.0, 1e9, std::numeric_limits<double>::infinity()}) {
    Calibrator fresh;
    api::PerformanceProfile profile;
    profile.metadata.uid = "p";
    profile.status.calibration = status;
    profile.status.calibration.decode.scale = scale;
    fresh.adopt(kHere, profile, fit, sheet_);
    const planner::LinearModel read(planner::estimated(sheet_, fresh.find(kHere)->learner.estimate()));
    EXPECT_NEAR(read.decode_s(8, 512) / planner::LinearModel(sheet_).decode_s(8, 512), 1, 0.05) << scale;
  }
}

// Given a configuration that no service uses any more; expects it to be forgotten, and kept while one does.
TEST_F(CalibratorTest, ForgetsUnusedConfigurations) {
  LiveWorker worker(sheet_, 1.4, 1.1);
  run(worker, 100);
  calibrator_.keep({}, {kHere});
  EXPECT_TRUE(calibrator_.estimate(kHere));
  calibrator_.keep({}, {});
  EXPECT_FALSE(calibrator_.estimate(kHere));
}

}  // namespace
}  // namespace windlass::controller
