// The accuracy that operator models must reach on ../shared/data (docs/algorithms/latency.md), and the closed loop that
// predicts end-to-end measurements, against hand calculations.
#include <filesystem>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/bench/fidelity/closed_loop.h"
#include "tests/bench/fidelity/end_to_end.h"
#include "tests/bench/fidelity/operator_report.h"
#include "tests/bench/fidelity/random_forest.h"
#include "tests/paths.h"

namespace windlass::bench {
namespace {

const std::string kData = source_path("/../shared/data");

bool has(const std::string& path) { return std::filesystem::exists(kData + "/" + path); }

// An iteration takes 1 s for each prompt token and 10 s for each decoding sequence.
class CountingModel final : public planner::IterationModel {
 public:
  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override {
    return batch.prefill_tokens + 10.0 * batch.decode_sequences;
  }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch&) const override { return planner::Coverage::kMeasured; }
  [[nodiscard]] double kv_capacity_tokens() const override { return 1e6; }
};

// Given two clients with prompts of 4 tokens and answers of 3, prefill first; expects one wave with a prefill of both (8 s) and
// two decodes of 20 s.
TEST(ClosedLoop, OneWaveByHand) {
  planner::EngineSettings options;
  options.batching = planner::Batching::kVllm;
  options.kv_blocks = 1000;
  const ClosedLoopResult result = run_closed_loop(
      {.clients = 2, .requests = 2, .input_tokens = 4, .output_tokens = 3, .request_s = 0.5}, options, CountingModel());
  EXPECT_TRUE(result.fits);
  EXPECT_EQ(result.mean_ttft_s, 8.5);
  EXPECT_EQ(result.mean_tpot_s, 20);
  EXPECT_EQ(result.iterations, 3);
}

// Given one client and three requests; expects three equal times, one after the other. Given a cache too small for one request;
// expects that it does not fit.
TEST(ClosedLoop, OneClientTakesTurns) {
  planner::EngineSettings options;
  options.batching = planner::Batching::kSarathi;
  options.kv_blocks = 1000;
  const ClosedLoop load{.clients = 1, .requests = 3, .input_tokens = 4, .output_tokens = 3, .turnaround_s = 7};
  const ClosedLoopResult result = run_closed_loop(load, options, CountingModel());
  EXPECT_EQ(result.mean_ttft_s, 4);
  EXPECT_EQ(result.mean_tpot_s, 10);
  EXPECT_EQ(result.iterations, 9);
  options.kv_blocks = 0;
  EXPECT_FALSE(run_closed_loop(load, options, CountingModel()).fits);
}

// Given a step in one of two coordinates; expects the forest to find it and to predict means of the training values.
TEST(RandomForest, FindsAStep) {
  Rng rng(1, "step");
  std::vector<double> points;
  std::vector<double> values;
  for (int i = 0; i < 500; ++i) {
    const double x = rng.uniform(-1, 1);
    points.insert(points.end(), {rng.uniform(-1, 1), x});
    values.push_back(x < 0.25 ? 3 : 8);
  }
  const RandomForest forest(2, points, values, {});
  EXPECT_NEAR(forest.at(std::vector<double>{0.9, -0.5}), 3, 1e-9);
  EXPECT_NEAR(forest.at(std::vector<double>{-0.9, 0.9}), 8, 1e-9);
}

// Given A100's and L40S' tables (H100's and H200's take longer; docs have them); expects held-out fifths to be interpolated
// with a median error under 5 %.
TEST(OperatorFidelity, InterpolationOfHeldOutFifths) {
  if (!has("profiles/operators")) GTEST_SKIP() << "no " << kData << "/profiles/operators";
  for (const std::string folder : {"a100_sxm", "l40s"}) {
    const auto gpu = load_operators(kData, folder);
    ASSERT_TRUE(gpu.ok()) << gpu.error().message;
    const std::vector<FidelityLine> lines = interpolation_lines(*gpu);
    EXPECT_GE(lines.size(), 12u);
    for (const FidelityLine& line : lines) EXPECT_LT(line.median, 0.05) << line.group;
  }
}

// Given the same tables, all rows by roofline; expects a median error under 15 % for 16-bit products and attention.
TEST(OperatorFidelity, RooflineOverAllRows) {
  if (!has("profiles/operators")) GTEST_SKIP() << "no " << kData << "/profiles/operators";
  for (const std::string folder : {"a100_sxm", "h100_sxm", "l40s"}) {
    const auto gpu = load_operators(kData, folder);
    ASSERT_TRUE(gpu.ok()) << gpu.error().message;
    int judged = 0;
    for (const FidelityLine& line : roofline_lines(*gpu)) {
      if (line.group.find("fp8") != std::string::npos || line.group.find(", ") != std::string::npos) continue;
      ++judged;
      EXPECT_LT(line.median, 0.15) << line.group;
    }
    EXPECT_GE(judged, 3);
  }
}

// Given Vidur's operators; expects a MAPE of held-out fifths under 5 % for compute and 8 % for communication.
TEST(OperatorFidelity, VidursOperators) {
  if (!has("profiles/vidur-a100-codellama34b-tp2")) GTEST_SKIP() << "no " << kData << "/profiles/vidur-a100-codellama34b-tp2";
  const auto samples = load_vidur(kData);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  std::map<std::string, double> mape;
  for (const FidelityLine& line : vidur_lines(*samples)) mape[line.group] = line.mean;
  ASSERT_TRUE(mape.contains("all compute operators (MAPE)") && mape.contains("all communication operators (MAPE)"));
  EXPECT_LT(mape["all compute operators (MAPE)"], 0.05);
  EXPECT_LT(mape["all communication operators (MAPE)"], 0.08);
}

// Given the end-to-end rows; expects a median error under 10 % for TPOT over all rows, and under 20 % for TTFT of vLLM and
// SGLang.
TEST(OperatorFidelity, EndToEnd) {
  if (!has("measured/e2e_h100.csv")) GTEST_SKIP() << "no " << kData << "/measured/e2e_h100.csv";
  const auto gpu = load_operators(kData, "h100_sxm");
  const auto rows = load_end_to_end(kData);
  const auto vidur = load_vidur(kData);
  ASSERT_TRUE(gpu.ok() && rows.ok() && vidur.ok());
  const auto predictions = predict_end_to_end(*rows, *gpu, *vidur);
  ASSERT_TRUE(predictions.ok()) << predictions.error().message;
  std::map<std::string, double> median;
  for (const FidelityLine& line : end_to_end_lines(*predictions)) median[line.group] = line.median;
  ASSERT_EQ(median.size(), 7u);
  EXPECT_LT(median["TPOT, all rows"], 0.10);
  EXPECT_LT(median["TTFT, vllm"], 0.20);
  EXPECT_LT(median["TTFT, sglang"], 0.20);
}

}  // namespace
}  // namespace windlass::bench
