// The accuracy that operator models must reach on ../shared/data (docs/algorithms/latency.md), and the closed loop that
// predicts end-to-end measurements, against hand calculations.
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/base/executor.h"
#include "planner/base/rng.h"
#include "tests/bench/fidelity/closed_loop.h"
#include "tests/bench/fidelity/left_out.h"
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

planner::EngineSettings settings(planner::Batching batching) {
  planner::EngineSettings settings;
  settings.batching = batching;
  settings.kv_blocks = 1000;
  return settings;
}

// Given two clients with prompts of 4 tokens and answers of 3, prefill first; expects one wave with a prefill of both (8 s) and
// two decodes of 20 s.
TEST(ClosedLoop, OneWaveByHand) {
  const ClosedLoopResult result = run_closed_loop({.clients = 2, .requests = 2, .input_tokens = 4, .output_tokens = 3},
                                                  settings(planner::Batching::kVllm), CountingModel());
  EXPECT_TRUE(result.fits);
  EXPECT_EQ(result.mean_ttft_s, 8);
  EXPECT_EQ(result.mean_tpot_s, 20);
  EXPECT_EQ(result.iterations, 3);
}

// Given one client and three requests; expects three equal times, one after the other. Given a cache too small for one request;
// expects that it does not fit.
TEST(ClosedLoop, OneClientTakesTurns) {
  planner::EngineSettings options = settings(planner::Batching::kSarathi);
  const ClosedLoop load{.clients = 1, .requests = 3, .input_tokens = 4, .output_tokens = 3, .turnaround_s = 7};
  const ClosedLoopResult result = run_closed_loop(load, options, CountingModel());
  EXPECT_EQ(result.mean_ttft_s, 4);
  EXPECT_EQ(result.mean_tpot_s, 10);
  EXPECT_EQ(result.iterations, 9);
  options.schedules_ahead = true;
  EXPECT_EQ(run_closed_loop(load, options, CountingModel()).mean_ttft_s, 4) << "an idle engine has nothing to wait for";
  options.kv_blocks = 0;
  EXPECT_FALSE(run_closed_loop(load, options, CountingModel()).fits);
}

// Given a front end with 0.5 s for a request and 0.25 s for a token; expects both in TTFT, and none in TPOT while the engine is
// slower. Given one with 40 s for a token; expects its queue to grow: three tokens take 120 s.
TEST(ClosedLoop, FrontEndIsSerial) {
  ClosedLoop load{.clients = 1, .requests = 1, .input_tokens = 4, .output_tokens = 3, .request_s = 0.5, .token_s = 0.25};
  const ClosedLoopResult fast = run_closed_loop(load, settings(planner::Batching::kSarathi), CountingModel());
  EXPECT_EQ(fast.mean_ttft_s, 4.75);
  EXPECT_EQ(fast.mean_tpot_s, 10);
  load.token_s = 40;
  const ClosedLoopResult slow = run_closed_loop(load, settings(planner::Batching::kSarathi), CountingModel());
  EXPECT_EQ(slow.mean_ttft_s, 44.5);
  EXPECT_EQ(slow.mean_tpot_s, 40);
}

// Given two clients, three requests and a budget of 5 tokens: the first answer ends at 38 s, and the third prompt shares its
// iteration with the second answer's last token, which then comes at 52 s. With scheduling ahead, expects that token at 48 s,
// alone, and the third prompt after it.
TEST(ClosedLoop, SchedulingAheadDelaysArrivals) {
  planner::EngineSettings options = settings(planner::Batching::kSarathi);
  options.max_batch_tokens = 5;
  const ClosedLoop load{.clients = 2, .requests = 3, .input_tokens = 4, .output_tokens = 3};
  const ClosedLoopResult at_once = run_closed_loop(load, options, CountingModel());
  EXPECT_DOUBLE_EQ(at_once.mean_ttft_s, (5 + 18 + 14) / 3.0);
  EXPECT_DOUBLE_EQ(at_once.mean_tpot_s, (16.5 + 17 + 10) / 3.0);
  options.schedules_ahead = true;
  const ClosedLoopResult ahead = run_closed_loop(load, options, CountingModel());
  EXPECT_DOUBLE_EQ(ahead.mean_ttft_s, (5 + 18 + 14) / 3.0);
  EXPECT_DOUBLE_EQ(ahead.mean_tpot_s, (16.5 + 15 + 10) / 3.0);
}

// Given many requests of answers that differ by up to a tenth; expects the same result for the same seed, and another one for
// another seed.
TEST(ClosedLoop, JitterFollowsItsSeed) {
  ClosedLoop load{.clients = 4, .requests = 40, .input_tokens = 4, .output_tokens = 50, .output_jitter = 0.1};
  const auto run = [&] { return run_closed_loop(load, settings(planner::Batching::kSarathi), CountingModel()).mean_tpot_s; };
  const double first = run();
  EXPECT_EQ(run(), first);
  load.seed = 2;
  EXPECT_NE(run(), first);
}

// Given errors of 1, 2, 3 and 10 per cent, half of them too low; expects their median and P90. Expects half as much to count as
// far as twice as much.
TEST(Errors, MediansAndLogarithms) {
  const Errors errors = errors_of({1.01, 0.98, 1.03, 0.9}, {1, 1, 1, 1});
  EXPECT_EQ(errors.rows, 4u);
  EXPECT_NEAR(errors.median, 0.025, 1e-12);
  EXPECT_NEAR(errors.p90, 0.1, 1e-12);
  EXPECT_EQ(errors_of({0.5}, {1}).median_log, errors_of({2}, {1}).median_log);
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

// Given eight errors; expects that they are too few for nine of ten. Given nine; expects the largest. Given 19; expects the
// 18th smallest.
TEST(ConformalBound, TakesTheRankOfOneMore) {
  std::vector<double> errors = {0.7, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0};
  EXPECT_FALSE(conformal_bound(errors));
  errors.push_back(0.9);
  EXPECT_DOUBLE_EQ(*conformal_bound(errors), 0.9);
  for (int i = 0; i < 10; ++i) errors.push_back(1 + i);
  EXPECT_DOUBLE_EQ(*conformal_bound(errors), 9.0);
}

// Given rows of four models, 28 off by 1 % and 12 by 20 %, with spreads in proportion; expects each interval to
// contain its row, and those of the twelve to be wider.
TEST(LeaveOut, WidensIntervalsWhereLatentsMoveAPrediction) {
  std::vector<EndToEndRow> all;
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < 40; ++i) {
    EndToEndRow row;
    row.engine = "vllm";
    row.model = fmt::format("maker/model-{}", i % 4);
    row.tpot_s = row.ttft_s = 1;
    all.push_back(row);
    rows.push_back(i);
  }
  const auto error = [](std::size_t row) { return row < 28 ? 0.01 : 0.2; };
  const auto left_out = leave_out(all, rows, {"model"}, [&](const auto&, const auto& test) -> Result<std::vector<LeftOutRow>> {
    std::vector<LeftOutRow> found;
    for (const std::size_t row : test) {
      const double predicted = std::exp(error(row)), spread = error(row) / 2;
      found.push_back({row, predicted, predicted, spread, spread});
    }
    return found;
  });
  ASSERT_TRUE(left_out.ok()) << left_out.error().message;
  ASSERT_EQ(left_out->size(), 4u);
  for (const LeftOut& of : *left_out) {
    for (const LeftOutRow& row : of.rows) {
      ASSERT_TRUE(row.tpot_factor && row.ttft_factor);
      EXPECT_GE(std::log(*row.tpot_factor), error(row.row) - 1e-9);
      EXPECT_EQ(row.row >= 28, *row.tpot_factor > 1.15) << row.row;
      EXPECT_DOUBLE_EQ(*row.tpot_factor, *row.ttft_factor);
    }
  }
}

// Given vLLM's rows; expects fitted costs to predict their TPOT within 5 %, and no costs to miss by more than 10 %. Expects the
// mean of both to be half of the first.
TEST(FitCosts, ComesCloserThanNoCosts) {
  if (!has("measured/e2e_h200.csv")) GTEST_SKIP() << "no " << kData << "/measured/e2e_h200.csv";
  auto data = EndToEnd::load(kData);
  ASSERT_TRUE(data.ok()) << data.error().message;
  SerialExecutor executor;
  Predictions predictions(*data, executor);
  std::vector<std::size_t> rows;
  std::vector<double> measured;
  for (std::size_t i = 0; i < data->rows().size() && rows.size() < 20; ++i) {
    if (data->rows()[i].engine != "vllm" || data->rows()[i].weights != planner::GemmKind::kBFloat16) continue;
    rows.push_back(i);
    measured.push_back(data->rows()[i].tpot_s);
  }
  const auto fitted = fit_costs(predictions, rows);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  const auto error = [&](const EngineCosts& costs) {
    std::vector<double> predicted;
    for (const ClosedLoopResult& one : *predictions.of(rows, costs)) predicted.push_back(one.mean_tpot_s);
    return errors_of(predicted, measured).median;
  };
  EXPECT_LT(error(*fitted), 0.05);
  EXPECT_GT(error({}), 0.1) << "without costs, the kernels alone are too fast";
  const std::vector<EngineCosts> two = {*fitted, {}};
  EXPECT_DOUBLE_EQ(mean_of(two).iteration_s, fitted->iteration_s / 2);
}

// Given an unknown engine; expects an error that names what is allowed.
TEST(LoadRecipe, KnowsThreeEngines) {
  EndToEndRow row;
  row.engine = "tgi";
  EXPECT_EQ(recipe_of(row).error().message, "backend: must be vllm, sglang or trtllm (got 'tgi')");
  row.engine = "trtllm";
  row.input_tokens = 1024;
  row.clients = 128;
  const LoadRecipe recipe = *recipe_of(row);
  EXPECT_EQ(load_of(row, recipe, {}).requests, 2000);
  EXPECT_EQ(load_of(row, recipe, {}).input_tokens, 1039);
  EXPECT_EQ(settings_of(row, recipe).max_batch_tokens, 1024 + 128);
}

// Given the end-to-end rows; expects the sets whose prompts were probably cached to be left out.
TEST(OperatorFidelity, ImpossibleRowsAreLeftOut) {
  if (!has("measured/e2e_h200.csv")) GTEST_SKIP() << "no " << kData << "/measured/e2e_h200.csv";
  auto data = EndToEnd::load(kData);
  ASSERT_TRUE(data.ok()) << data.error().message;
  const auto counted = counted_rows(*data);
  ASSERT_TRUE(counted.ok()) << counted.error().message;
  EXPECT_GT(counted->rows.size(), 250u);
  EXPECT_FALSE(counted->suspicious.empty());
  for (const std::size_t row : counted->suspicious) EXPECT_NE(data->rows()[row].weights, planner::GemmKind::kBFloat16);
  for (const std::size_t row : counted->rows) {
    EXPECT_FALSE(data->rows()[row].engine == "vllm" && data->rows()[row].gpu == "h200_sxm");
  }
}

// Given the end-to-end rows, each tensor-parallel degree left out in turn; expects a median error under 5 % for TPOT and under
// 15 % for TTFT over all rows (docs/algorithms/latency-end-to-end.md has the figures), and that a longer iteration moves each.
TEST(OperatorFidelity, EndToEndLeftOut) {
  if (!has("measured/e2e_h200.csv")) GTEST_SKIP() << "no " << kData << "/measured/e2e_h200.csv";
  auto data = EndToEnd::load(kData);
  ASSERT_TRUE(data.ok()) << data.error().message;
  const auto counted = counted_rows(*data);
  ASSERT_TRUE(counted.ok()) << counted.error().message;
  SerialExecutor executor;
  Predictions predictions(*data, executor);
  const std::vector<Latent> longer = {
      {"an iteration's CPU time", {[](LoadRecipe&, EngineCosts& costs) { costs.iteration_s *= 1.5; }}}};
  const auto left_out = leave_out(predictions, counted->rows, longer, {"TP"});
  ASSERT_TRUE(left_out.ok()) << left_out.error().message;
  std::vector<double> tpot, measured_tpot, ttft, measured_ttft;
  for (const LeftOut& of : *left_out) {
    for (const LeftOutRow& row : of.rows) {
      tpot.push_back(row.tpot_s);
      ttft.push_back(row.ttft_s);
      EXPECT_GT(row.tpot_spread, 0) << row.row;
      measured_tpot.push_back(data->rows()[row.row].tpot_s);
      measured_ttft.push_back(data->rows()[row.row].ttft_s);
    }
  }
  EXPECT_EQ(tpot.size(), counted->rows.size());
  EXPECT_LT(errors_of(tpot, measured_tpot).median, 0.05);
  EXPECT_LT(errors_of(ttft, measured_ttft).median, 0.15);
}

}  // namespace
}  // namespace windlass::bench
