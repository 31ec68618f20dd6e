// Tests of PerformanceProfiles as text: a profile read back predicts exactly the same, and errors are named.
#include "planner/perf/profile_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/perf/profile_fit.h"
#include "planner/perf/profile_operators.h"
#include "tests/effort.h"
#include "tests/says.h"
#include "tests/unit/planner/perf/performance_profiles.h"
#include "tests/unit/planner/workload/mutated_text.h"

namespace windlass::planner {
namespace {

using testing::HasSubstr;

// Checks that both predict the same, bit for bit, and have the same basis, on batches inside and outside the measured range.
void expect_same_predictions(const PerformanceProfile& a, const PerformanceProfile& b, std::uint64_t seed) {
  const auto first = iteration_model(a, test_shape(), test_accelerator(), 1e5);
  const auto second = iteration_model(b, test_shape(), test_accelerator(), 1e5);
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_TRUE(second.ok()) << second.error().message;
  Rng rng(seed, "batches");
  for (int i = 0; i < 500; ++i) {
    const Batch batch = random_batch(rng);
    ASSERT_EQ((*first)->iteration_s(batch), (*second)->iteration_s(batch)) << "seed " << seed << ", batch " << i;
    ASSERT_EQ((*first)->coverage(batch), (*second)->coverage(batch)) << "seed " << seed << ", batch " << i;
  }
  EXPECT_EQ((*first)->kv_capacity_tokens(), (*second)->kv_capacity_tokens());
}

PerformanceProfile read_back(const PerformanceProfile& profile) {
  auto read = parse_performance_profile(object_text(profile), "p.yaml");
  EXPECT_TRUE(read.ok()) << read.error().message;
  return read.ok() ? *read : PerformanceProfile{};
}

void expect_equal_but_fit(const PerformanceProfile& a, const PerformanceProfile& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.accelerator, b.accelerator);
  EXPECT_EQ(a.gpus_per_worker, b.gpus_per_worker);
  EXPECT_EQ(a.pipeline_parallel, b.pipeline_parallel);
  EXPECT_EQ(a.kv_capacity_tokens, b.kv_capacity_tokens);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.folds, b.folds);
  EXPECT_EQ(a.errors.size(), b.errors.size());
  EXPECT_EQ(a.transfer, b.transfer);
}

// Given lines of both forms fitted on noisy rows: the same coefficients, ranges, transfers and predictions.
TEST(ProfileYaml, LinesComeBackExactly) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    auto profile = fit_lines(made_rows(seed, 0.2), kKey, seed % 2 == 0 ? LinearForm::kAladdin : LinearForm::kHuawei);
    ASSERT_TRUE(profile.ok()) << profile.error().message;
    profile->source.file = "rows.csv";
    if (seed % 3 == 0) profile->kv_capacity_tokens = 70'000 + static_cast<double>(seed);
    if (seed % 4 == 1) profile->transfer = {1e9 / 3 * static_cast<double>(seed), 1e-3 / 7, 131072.5, 18};
    if (seed % 4 == 2) profile->transfer = {2e9, 0, 0, 0};
    const PerformanceProfile back = read_back(*profile);
    expect_equal_but_fit(*profile, back);
    EXPECT_EQ(std::get<FittedLines>(profile->fit), std::get<FittedLines>(back.fit)) << "seed " << seed;
    expect_same_predictions(*profile, back, seed);
  }
}

// Given medians in both interpretations: the same cells and predictions.
TEST(ProfileYaml, CellsComeBackExactly) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto reading = seed % 2 == 0 ? ProfileReading::kBatchShape : ProfileReading::kBatchTokens;
    const auto profile = fit_cells(made_rows(seed, 0.1, 1 + static_cast<int>(seed % 4)), kKey, reading);
    ASSERT_TRUE(profile.ok()) << profile.error().message;
    const PerformanceProfile back = read_back(*profile);
    expect_equal_but_fit(*profile, back);
    EXPECT_EQ(std::get<MeasuredCells>(profile->fit), std::get<MeasuredCells>(back.fit)) << "seed " << seed;
    expect_same_predictions(*profile, back, seed);
  }
}

// Given operator tables on one and on two GPUs: the same tables, overhead and predictions.
TEST(ProfileYaml, OperatorsComeBackExactly) {
  const ModelShape shape = test_shape();
  const AcceleratorSpec spec = test_accelerator();
  for (const int gpus : {1, 2}) {
    OperatorFitRequest request{shape, spec, {}, {}};
    request.options.tensor_parallel = gpus;
    request.options.overhead.iteration_s = 1.0 / 3000;
    auto fit = fit_operators(made_tables(shape, spec), request);
    ASSERT_TRUE(fit.ok()) << fit.error().message;
    fit->profile.model = "llama3-8b";
    fit->profile.source.format = "OperatorTables";
    const PerformanceProfile back = read_back(fit->profile);
    expect_equal_but_fit(fit->profile, back);
    const auto& before = std::get<MeasuredOperators>(fit->profile.fit);
    const auto& after = std::get<MeasuredOperators>(back.fit);
    EXPECT_EQ(before.shape, after.shape);
    EXPECT_EQ(before.tables.gemm, after.tables.gemm);
    EXPECT_EQ(before.tables.context_attention, after.tables.context_attention);
    EXPECT_EQ(before.tables.generation_attention, after.tables.generation_attention);
    EXPECT_EQ(before.tables.collectives, after.tables.collectives);
    EXPECT_EQ(before.overhead.iteration_s, after.overhead.iteration_s);
    expect_same_predictions(fit->profile, back, static_cast<std::uint64_t>(gpus));
  }
}

// Given random doubles of all magnitudes: 17 digits read back as the same; other texts are refused.
TEST(ProfileYaml, CoefficientsComeBackExactly) {
  Rng rng(1, "coefficients");
  for (int i = 0; i < effort(1000, 10'000); ++i) {
    const double value = rng.normal() * std::pow(10, rng.uniform(-30, 30));
    ASSERT_EQ(parse_coefficient(print_coefficient(value)), value);
  }
  for (const char* text : {"", "nan", "inf", "0x10", " 1", "1 ", "1,5", "1e999", "abc"}) {
    EXPECT_FALSE(parse_coefficient(text)) << text;
  }
}

// Given lines fitted to some sizes: batches outside them are extrapolated, also after a round trip.
TEST(ProfileYaml, WhatWasNotMeasuredStaysExtrapolated) {
  const auto profile = fit_lines(made_rows(1, 0), kKey, LinearForm::kHuawei);
  ASSERT_TRUE(profile.ok());
  const auto model = iteration_model(read_back(*profile), test_shape(), test_accelerator(), 1e5);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->coverage(prefill_batch(8, 1024)), Coverage::kMeasured);
  EXPECT_EQ((*model)->coverage(prefill_batch(64, 1024)), Coverage::kExtrapolated);
  EXPECT_EQ((*model)->coverage(prefill_batch(1, 8192)), Coverage::kExtrapolated);
  EXPECT_EQ((*model)->coverage(decode_batch(8, 1000)), Coverage::kMeasured);
  EXPECT_EQ((*model)->coverage(decode_batch(8, 20)), Coverage::kExtrapolated);
}

// Given texts with one error each: the file, the line, the field, what was found and what is allowed.
TEST(ProfileYaml, NamesMistakes) {
  const std::string good = R"(apiVersion: windlass.dev/v1alpha1
kind: PerformanceProfile
metadata: {name: p}
spec:
  model: {name: tiny}
  accelerator: h100-80gb
  gpusPerWorker: 2
  transfer: {bandwidthBytesPerSecond: "2e+09", bytesPerToken: "512", samples: 6}
  fit:
    type: Profile
    profile:
      reading: BatchShape
      points:
      - {promptTokens: 512, batchSize: 1, outputTokens: 8, promptSeconds: "0.1", tokenSeconds: "0.02"}
)";
  ASSERT_TRUE(is_performance_profile(good));
  ASSERT_TRUE(parse_performance_profile(good, "p.yaml").ok());
  struct Case {
    const char* from;
    const char* to;
    const char* expected;
  };
  for (const Case& one : {
           Case{"kind: PerformanceProfile", "kind: Performance", "p.yaml:2: kind: must*(got 'Performance')"},
           Case{"windlass.dev/v1alpha1", "windlass.dev/v2", "p.yaml:1: apiVersion: must*(got 'windlass.dev/v2')"},
           Case{"gpusPerWorker: 2", "gpusPerWorker: 0", "p.yaml:7: spec.gpusPerWorker: must*(got '0')"},
           Case{"  gpusPerWorker: 2\n", "", "spec.gpusPerWorker"},
           Case{"gpusPerWorker: 2", "gpusPerWorker: 2\n  pipelineParallel: 4", "spec.pipelineParallel: must be a divisor"},
           Case{"gpusPerWorker: 2", "gpusPerWorker: 2\n  speed: 4", "p.yaml:8: spec.speed"},
           Case{"type: Profile", "type: Forest", "p.yaml:10: spec.fit.type: must*(got 'Forest')"},
           Case{"type: Profile", "type: Linear", "p.yaml:12: spec.fit.profile: belongs to type Profile (got Linear)"},
           Case{"reading: BatchShape", "reading: Both", "p.yaml:12: spec.fit.profile.reading: must*(got 'Both')"},
           Case{"\"0.1\"", "0.1", "p.yaml:14: spec.fit.profile.points[0].promptSeconds: must be a quoted decimal*(got '0.1')"},
           Case{"\"0.1\"", "\"-0.1\"", "points[0].promptSeconds: must be a quoted decimal*(got the text '-0.1')"},
           Case{"\"0.1\"", "\"fast\"", "points[0].promptSeconds: must*(got the text 'fast')"},
           Case{"promptTokens: 512", "promptTokens: 0.5", "points[0].promptTokens: must*(got '0.5')"},
           Case{", tokenSeconds: \"0.02\"", "", "points[0].tokenSeconds"},
           Case{"bandwidthBytesPerSecond: \"2e+09\", ", "", "p.yaml:8: spec.transfer.bandwidthBytesPerSecond: missing"},
           Case{"\"2e+09\"", "2e+09", "p.yaml:8: spec.transfer.bandwidthBytesPerSecond: must be a quoted*(got '2e+09')"},
           Case{"\"2e+09\"", "\"0\"", "bandwidthBytesPerSecond: must be a quoted decimal from 1 to 1e+15*(got the text '0')"},
           Case{"\"512\"", "\"512\", latencySeconds: \"-1\"", "spec.transfer.latencySeconds: must*(got the text '-1')"},
           Case{"\"512\"", "\"0\"", "spec.transfer.bytesPerToken: must be a quoted decimal from 1*(got the text '0')"},
           Case{"samples: 6", "samples: 0", "spec.transfer.samples: must be a whole number from 1*(got '0')"},
           Case{"samples: 6", "latency: 6", "p.yaml:8: spec.transfer.latency"},
       }) {
    std::string text = good;
    const std::size_t at = text.find(one.from);
    ASSERT_NE(at, std::string::npos) << one.from;
    text.replace(at, std::string(one.from).size(), one.to);
    const auto parsed = parse_performance_profile(text, "p.yaml");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, Says(one.expected));
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos) << parsed.error().message;
  }
}

// Given a spec from a newer API server with an unknown field: ignored in JSON, refused in a file.
TEST(ProfileYaml, IgnoresNewFieldsOfTheServer) {
  const auto profile = fit_cells(made_rows(1, 0.1), kKey, ProfileReading::kBatchShape);
  ASSERT_TRUE(profile.ok());
  nlohmann::json spec = to_json(*profile);
  spec["fit"]["profile"]["points"][0]["power"] = "700";
  const auto read = performance_profile_from_json(spec);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(std::get<MeasuredCells>(read->fit), std::get<MeasuredCells>(profile->fit));
  const nlohmann::json object = {
      {"apiVersion", "windlass.dev/v1alpha1"}, {"kind", "PerformanceProfile"}, {"metadata", {{"name", "p"}}}, {"spec", spec}};
  const auto file = parse_performance_profile(object.dump(1), "p.yaml");
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("spec.fit.profile.points[0].power"));
}

// Given a table with a broken row: the table, its line and its column.
TEST(ProfileYaml, NamesTheRowOfATable) {
  const ModelShape shape = test_shape();
  const AcceleratorSpec spec = test_accelerator();
  auto fit = fit_operators(made_tables(shape, spec), {shape, spec, {}, {}});
  ASSERT_TRUE(fit.ok()) << fit.error().message;
  fit->profile.model = "llama3-8b";
  nlohmann::json json = to_json(fit->profile);
  json["fit"]["operators"]["tables"]["gemmBFloat16"] = "m,n,k,seconds\n1,4096,4096,1e-5\n2,4096,4096,-1e-5\n";
  const auto read = performance_profile_from_json(json);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, Says("spec.fit.operators.tables.gemmBFloat16: line 3: seconds: must be*(got '-1e-5')"));
}

// Given tables reduced to one model: another model is refused, with the size that differs.
TEST(ProfileYaml, RefusesAnotherModelsOperators) {
  const ModelShape shape = test_shape();
  const AcceleratorSpec spec = test_accelerator();
  const auto fit = fit_operators(made_tables(shape, spec), {shape, spec, {}, {}});
  ASSERT_TRUE(fit.ok()) << fit.error().message;
  const auto other = iteration_model(fit->profile, model_shape_by_name("llama2-7b").value(), spec, 1e5);
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("spec.fit.operators.shape.kvHeads: must be the model's 32 (got 8)"));
}

// Given texts with a few bytes changed: either read, and then a model with finite times, or refused in one line; no crash.
TEST(ProfileYaml, MutatedTextsAreReadOrRefused) {
  const ModelShape shape = test_shape();
  const AcceleratorSpec spec = test_accelerator();
  auto operators = fit_operators(made_tables(shape, spec), {shape, spec, {}, {}});
  ASSERT_TRUE(operators.ok());
  auto& tables = std::get<MeasuredOperators>(operators->profile.fit).tables;
  tables.gemm.resize(10);
  tables.context_attention.resize(10);
  tables.generation_attention.resize(10);
  std::vector<std::string> texts = {object_text(operators->profile)};
  texts.push_back(object_text(*fit_lines(made_rows(1, 0.1), kKey, LinearForm::kHuawei)));
  texts.push_back(object_text(*fit_cells(made_rows(1, 0.1, 1), kKey, ProfileReading::kBatchShape)));
  Rng rng(5, "mutations");
  int read = 0, refused = 0;
  for (int i = 0; i < effort(600, 6000); ++i) {
    const std::string text =
        mutated_text(rng, texts[static_cast<std::size_t>(i) % texts.size()], "0159.-+eE,\"{}[]: \n\\x\xff");
    const auto profile = parse_performance_profile(text, "p.yaml");
    if (!profile.ok()) {
      ++refused;
      ASSERT_EQ(profile.error().message.find('\n'), std::string::npos) << profile.error().message;
      continue;
    }
    ++read;
    if (std::holds_alternative<MeasuredOperators>(profile->fit) && i % 30 != 0) continue;  // building its model takes long
    const auto model = iteration_model(*profile, shape, spec, 1e5);
    if (!model.ok()) continue;
    for (int j = 0; j < 5; ++j) {
      const double s = (*model)->iteration_s(random_batch(rng));
      ASSERT_TRUE(std::isfinite(s) && s >= 0) << text;
    }
  }
  EXPECT_GT(read, effort(6, 100));
  EXPECT_GT(refused, effort(66, 1000));
}

}  // namespace
}  // namespace windlass::planner
