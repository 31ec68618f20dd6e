// Tests how far predicted times may be off, by what is known of a worker.
#include "planner/perf/time_errors.h"

#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

LinearCoefficients data_sheet() { return {2e-5, 6e-3, 3e-9, 2e-5, 6e-3, 400'000}; }

// A worker whose iterations take twice the data sheet's time, with this scatter, seen `observations` times.
WorkerEstimate observed_worker(int observations, double scatter, std::uint64_t seed = 1) {
  Rng rng(seed, "figure");
  WorkerEstimate worker{"h100", 1, false, {}};
  const LinearModel truth(data_sheet());
  for (int i = 0; i < observations; ++i) {
    const double batch = rng.uniform(4, 32), prompts = rng.uniform(0, 0.5);
    const IterationContent content{1, batch, 600, prompts * 400, prompts};
    const double seconds =
        2 * (truth.decode_s(batch, 600) + content.prompt_tokens * data_sheet().k1) * (1 + scatter * rng.normal());
    IterationObservation observation{content, seconds, 50, 0};
    observation.decodes = true;
    static_cast<void>(learn(worker.estimate, data_sheet(), observation, 5));
  }
  return worker;
}

constexpr WorkerLoad kLoad{16, 600, 400};
constexpr TimeErrors kSheet{1.3, 2};

// Given engines and accelerators with and without published runs; expects wider intervals without, and the data sheet named.
TEST(TimeErrors, SheetsOfUnknownEnginesAreLessSure) {
  const AcceleratorSpec h100 = *accelerator_by_name("h100-80gb"), l4 = *accelerator_by_name("l4");
  const ModelShape shape = model_shape_by_name("llama3-8b").value();
  const TimeErrors known = sheet_errors(shape, h100, EngineType::kVLLM);
  EXPECT_GT(known.tpot, 1);
  EXPECT_GT(known.ttft, known.tpot);
  EXPECT_EQ(known.from, Provenance::kDataSheet);
  for (const TimeErrors& unknown :
       {sheet_errors(shape, h100, EngineType::kWindlass), sheet_errors(shape, l4, EngineType::kVLLM)}) {
    EXPECT_GT(unknown.tpot, known.tpot);
    EXPECT_GT(unknown.ttft, known.ttft);
  }
}

// Given more and more observations of a worker; expects narrower intervals, which say that they were measured.
TEST(TimeErrors, ObservationsNarrowIt) {
  const TimeErrors few = estimate_errors(data_sheet(), observed_worker(3, 0.05), 1, kLoad, kSheet);
  const TimeErrors many = estimate_errors(data_sheet(), observed_worker(60, 0.05), 1, kLoad, kSheet);
  EXPECT_LT(many.tpot, few.tpot);
  EXPECT_LT(many.ttft, few.ttft);
  EXPECT_LT(many.tpot, 1.25) << "observations scatter by 5 %";
  EXPECT_EQ(many.from, Provenance::kMeasured);
  // A prefill worker, of which nobody saw a decode.
  WorkerEstimate prompts = observed_worker(60, 0.05);
  prompts.estimate.decode_count = prompts.estimate.largest_batch = 0;
  EXPECT_EQ(estimate_errors(data_sheet(), prompts, 1, {0, 0, 400}, kSheet).from, Provenance::kMeasured);
}

// Given workers with different scatter, and observations that were not learnt; expects about nine of ten inside.
TEST(TimeErrors, NineOfTenObservationsAreInside) {
  int inside = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed, "outside");
    const double scatter = rng.uniform(0.03, 0.1);
    const WorkerEstimate known = observed_worker(60, scatter, seed);
    const LinearModel believed(estimated(data_sheet(), known.estimate)), truth(data_sheet());
    const double factor = estimate_errors(data_sheet(), known, 1, kLoad, kSheet).tpot;
    for (int i = 0; i < 20; ++i) {
      const double seen_s = 2 * truth.decode_s(kLoad.batch, kLoad.context_tokens) * (1 + scatter * rng.normal());
      const double expected_s = believed.decode_s(kLoad.batch, kLoad.context_tokens);
      inside += seen_s >= expected_s / factor && seen_s <= expected_s * factor ? 1 : 0;
      ++all;
    }
  }
  EXPECT_GT(inside, 0.82 * all);
  EXPECT_LT(inside, 0.97 * all);
}

// Given a fit with 5 % error and no traffic yet; expects "Interpolated" within its batches and lengths, "Extrapolated" beyond.
// Given another number of GPUs; expects an interval wider than the data sheet's own.
TEST(TimeErrors, SaysHowAWorkerIsKnown) {
  WorkerEstimate profiled{"h100", 1, true, estimate_from(data_sheet(), LinearModel(data_sheet()), 0.05, 40, 32)};
  EXPECT_EQ(estimate_errors(data_sheet(), profiled, 1, kLoad, kSheet).from, Provenance::kInterpolated);
  EXPECT_EQ(estimate_errors(data_sheet(), profiled, 1, {64, 600, 400}, kSheet).from, Provenance::kExtrapolated);
  const double within = estimate_errors(data_sheet(), profiled, 1, kLoad, kSheet).tpot;
  profiled.contexts = {50, 60};
  const TimeErrors elsewhere = estimate_errors(data_sheet(), profiled, 1, kLoad, kSheet);
  EXPECT_EQ(elsewhere.from, Provenance::kExtrapolated) << "contexts of 600 tokens were not measured";
  EXPECT_GT(elsewhere.tpot, within);
  profiled.contexts = {400, 900};
  EXPECT_EQ(estimate_errors(data_sheet(), profiled, 1, kLoad, kSheet).from, Provenance::kInterpolated);
  const TimeErrors other = estimate_errors(data_sheet(), profiled, 2, kLoad, kSheet);
  EXPECT_EQ(other.from, Provenance::kExtrapolated);
  EXPECT_GT(other.tpot, kSheet.tpot);
  EXPECT_GT(other.ttft, kSheet.ttft);
}

// Given a mean error of 10 %; expects the factor of a normal error with that mean.
TEST(TimeErrors, FactorOfAMeanError) {
  EXPECT_NEAR(factor_of_mape(0.1), std::exp(1.645 * 0.1 / std::sqrt(2 / M_PI)), 1e-3);
  EXPECT_EQ(factor_of_mape(0), 1);
  EXPECT_LE(factor_of_mape(100), 4) << "bounded";
}

// Given a class with and without an estimate; expects the errors of the data sheet, or those of what was observed.
TEST(TimeErrors, ThoseBelievedFollowTheEstimates) {
  const AcceleratorSpec h100 = *accelerator_by_name("h100-80gb");
  const ModelShape shape = *model_shape_by_name("llama3.1-8b");
  const TimeErrors of_sheet = sheet_errors(shape, h100, EngineType::kVLLM);
  EXPECT_EQ(believed_errors(shape, h100, 1, EngineType::kVLLM, data_sheet(), {}, kLoad), of_sheet);
  WorkerEstimate worker = observed_worker(400, 0.02);
  worker.accelerator = h100.name;
  const TimeErrors known = believed_errors(shape, h100, 1, EngineType::kVLLM, data_sheet(), {&worker, 1}, kLoad);
  EXPECT_EQ(known.from, Provenance::kMeasured);
  EXPECT_LT(known.tpot, of_sheet.tpot);
}

// Given figures with expected, shorter and longer times; expects a time's ends by ratio, a share's by difference and within 0
// and 1, and both to hold the value even if both ends lie on one side.
TEST(TimeErrors, EndsFollowWhatChanges) {
  const Interval time = interval_of_time(2, 4, 3, 6);
  EXPECT_DOUBLE_EQ(time.low, 1.5);
  EXPECT_DOUBLE_EQ(time.high, 3);
  EXPECT_DOUBLE_EQ(interval_of_time(2, 4, 5, 6).low, 2);
  EXPECT_DOUBLE_EQ(interval_of_time(2, 0, 5, 6).high, 2);
  const Interval share = interval_of_share(0.95, 0.9, 1, 0.5);
  EXPECT_DOUBLE_EQ(share.low, 0.55);
  EXPECT_DOUBLE_EQ(share.high, 1);
}

}  // namespace
}  // namespace windlass::planner
