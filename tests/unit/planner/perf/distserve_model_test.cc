// Tests that DistServe's formulas equal their own arithmetic for every profile and random batches, and of errors in the files.
#include "planner/perf/distserve_model.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/planner/perf/data_files.h"

namespace windlass::planner {
namespace {

constexpr const char* kProfile = R"({"facebook/opt-13b": {
  "1": {"decoding_large_small_bs_threshold": 95, "prefill": [18, 0.1, 7e-6], "decoding_smallbs": [20, 6e-4, 0.04],
        "decoding_largebs": [7, 5e-4, 0.16]},
  "2": {"decoding_large_small_bs_threshold": 10, "prefill": [1, -1, 0], "decoding_smallbs": [1, 0, 0], "decoding_largebs": [2, 0, 0]}}})";
constexpr const char* kCapacities =
    "model,tp,pp,max_num_tokens\nfacebook/opt-13b,1,1,66144\nfacebook/opt-13b,1,2,163008\nfacebook/opt-13b,2,1,163008";

DistServeModel model_of(int tensor_parallel, int pipeline_parallel) {
  return DistServeModel::make(*parse_distserve_profile(kProfile), *parse_distserve_capacities(kCapacities), "opt-13b",
                              {tensor_parallel, pipeline_parallel})
      .value();
}

// Given two prompts of 100 and 300 tokens, and batches on both sides of the threshold: the times by hand.
TEST(DistServeModel, TimesByHand) {
  const DistServeModel model = model_of(1, 1);
  Batch prefill;
  prefill.add_prefill(100);
  prefill.add_prefill(300);
  EXPECT_NEAR(model.iteration_s(prefill), (18 + 0.1 * 400 + 7e-6 * (1e4 + 9e4) + 1) * 1e-3, 1e-15);
  EXPECT_NEAR(model.iteration_s(decode_batch(94, 10)), (20 + 6e-4 * 940 + 0.04 * 94) * 1e-3, 1e-15);
  EXPECT_NEAR(model.iteration_s(decode_batch(95, 10)), (7 + 5e-4 * 950 + 0.16 * 95) * 1e-3, 1e-15);
  EXPECT_EQ(model.kv_capacity_tokens(), 66144);
  EXPECT_EQ(model.pipeline_stages(), 1);
}

// Given two pipeline stages: one stage takes half of the work and, for prefill, 2 ms; the iteration takes both stages.
TEST(DistServeModel, PipelineStages) {
  const DistServeModel model = model_of(1, 2);
  const double work_ms = 18 + 0.1 * 200 + 7e-6 * 4e4;
  EXPECT_NEAR(model.prefill_stage_ms(prefill_batch(1, 200)), work_ms / 2 + 2, 1e-12);
  EXPECT_NEAR(model.iteration_s(prefill_batch(1, 200)), (work_ms + 4) * 1e-3, 1e-12);
  EXPECT_NEAR(model.iteration_s(decode_batch(3, 10)), (20 + 6e-4 * 30 + 0.04 * 3) * 1e-3, 1e-12);
  EXPECT_EQ(model.pipeline_stages(), 2);
  EXPECT_EQ(model.coverage(decode_batch(3, 10)), Coverage::kExtrapolated);
}

// Given a mixed batch: both times minus the smaller constant; it is marked, as are batches beyond the KV cache. Never negative.
TEST(DistServeModel, MixedBatchesAndCoverage) {
  const DistServeModel model = model_of(1, 1);
  Batch mixed = prefill_batch(1, 100);
  mixed.add_decode(50);
  EXPECT_NEAR(model.iteration_s(mixed), (18 + 0.1 * 100 + 7e-6 * 1e4 + 1 + 20 + 6e-4 * 50 + 0.04 - 18) * 1e-3, 1e-15);
  EXPECT_EQ(model.coverage(mixed), Coverage::kExtrapolated);
  EXPECT_EQ(model.coverage(prefill_batch(2, 500)), Coverage::kMeasured);
  EXPECT_EQ(model.coverage(prefill_batch(200, 500)), Coverage::kExtrapolated);
  EXPECT_EQ(model_of(2, 1).iteration_s(prefill_batch(1, 500)), 0);
}

// Given the published profiles of both engines: every model and parallelism, on random batches, equals the published formulas
// evaluated term by term from the file, to rounding.
TEST(DistServeModel, EqualsItsOwnFormulas) {
  const auto capacities_text = read_data("profiles/distserve/max_num_tokens.csv");
  if (!capacities_text) GTEST_SKIP() << "no " << data_path("profiles/distserve/max_num_tokens.csv");
  const auto capacities = parse_distserve_capacities(*capacities_text);
  ASSERT_TRUE(capacities.ok()) << capacities.error().message;
  Rng rng(1, "batches");
  int compared = 0;
  for (const char* engine : {"distserve", "vllm"}) {
    const auto text = read_data(std::string("profiles/distserve/profiler-a100-80g.") + engine + ".json");
    ASSERT_TRUE(text.has_value());
    const auto profile = parse_distserve_profile(*text);
    ASSERT_TRUE(profile.ok()) << profile.error().message;
    const nlohmann::json json = nlohmann::json::parse(*text);
    for (const auto& [name, degrees] : *profile) {
      for (const auto& [parallelism, tokens] : capacities->at(name)) {
        const auto& [tp, pp] = parallelism;
        if (!degrees.contains(tp)) continue;
        const auto model = DistServeModel::make(*profile, *capacities, name, parallelism);
        ASSERT_TRUE(model.ok());
        EXPECT_EQ(model->kv_capacity_tokens(), tokens);
        const nlohmann::json& file = json[name][std::to_string(tp)];
        for (int round = 0; round < 100; ++round) {
          Batch prefill;
          Batch decode;
          double sum = 0, squares = 0, context = 0;
          for (std::int64_t n = rng.integer(1, 8); n > 0; --n) {
            const auto length = static_cast<double>(rng.integer(1, 2048));
            prefill.add_prefill(length);
            sum += length;
            squares += length * length;
          }
          const auto requests = static_cast<int>(rng.integer(1, 200));
          for (int n = 0; n < requests; ++n) {
            const auto length = static_cast<double>(rng.integer(1, 2048));
            decode.add_decode(length);
            context += length;
          }
          const auto& p = file["prefill"];
          const double prefill_ms = (p[0].get<double>() + p[1].get<double>() * sum + p[2].get<double>() * squares) / pp + pp;
          const auto& d =
              file[requests < file["decoding_large_small_bs_threshold"].get<int>() ? "decoding_smallbs" : "decoding_largebs"];
          const double decode_ms = (d[0].get<double>() + d[1].get<double>() * context + d[2].get<double>() * requests) / pp;
          ASSERT_NEAR(model->prefill_stage_ms(prefill), prefill_ms, 1e-12 * prefill_ms);
          ASSERT_NEAR(model->decode_stage_ms(decode), decode_ms, 1e-12 * decode_ms);
          ASSERT_NEAR(model->iteration_s(prefill), prefill_ms * pp * 1e-3, 1e-12 * prefill_ms * pp);
          ASSERT_NEAR(model->iteration_s(decode), decode_ms * pp * 1e-3, 1e-12 * decode_ms * pp);
          ++compared;
        }
      }
    }
  }
  EXPECT_GE(compared, 2 * 27 * 100);
}

// Given a model or parallelism missing in a profile: errors that list what it has.
TEST(DistServeModel, ErrorsListTheModels) {
  const auto profile = parse_distserve_profile(kProfile);
  const auto capacities = parse_distserve_capacities(kCapacities);
  ASSERT_TRUE(profile.ok() && capacities.ok());
  const auto message = [&](const char* model, DistServeParallelism parallelism) {
    return DistServeModel::make(*profile, *capacities, model, parallelism).error().message;
  };
  EXPECT_EQ(message("opt-30b", {1, 1}), "DistServe profile: model: must be one of facebook/opt-13b (got 'opt-30b')");
  EXPECT_EQ(message("13b", {1, 1}), "DistServe profile: model: must be one of facebook/opt-13b (got '13b')");
  EXPECT_EQ(message("opt-13b", {4, 1}),
            "DistServe profile: facebook/opt-13b: tensor parallel degree: must be one of 1, 2 (got 4)");
  EXPECT_EQ(message("opt-13b", {2, 2}),
            "DistServe KV capacities: facebook/opt-13b: tensor x pipeline parallel: must be one of 1x1, 1x2, 2x1 (got 2x2)");
  EXPECT_EQ(DistServeModel::make(*profile, {}, "opt-13b", {1, 1}).error().message,
            "DistServe KV capacities: model: must be one of nothing (got 'opt-13b')");
}

// Given broken files: errors with the path or the line.
TEST(DistServeModel, NamesMistakesInFiles) {
  const auto message = [](const std::string& json) { return parse_distserve_profile(json).error().message; };
  EXPECT_NE(message("{").find("DistServe profile: not valid JSON"), std::string::npos);
  EXPECT_NE(message("[]").find("an object with a member for each model"), std::string::npos);
  EXPECT_NE(message(R"({"m": 3})").find("m: must be an object with a member for each tensor parallel degree"),
            std::string::npos);
  EXPECT_NE(message(R"({"m": {"x": {}}})").find("m: tensor parallel degree: must be a whole number"), std::string::npos);
  EXPECT_NE(message(R"({"m": {"1": {}}})").find("m.1.prefill"), std::string::npos);
  EXPECT_NE(message(R"({"m": {"1": {"prefill": [1, 2]}}})").find("m.1.prefill: must be a list of three numbers (got 2)"),
            std::string::npos);
  EXPECT_NE(message(R"({"m": {"1": {"prefill": [1, "2", 3]}}})").find("m.1.prefill[1]: must be a number"), std::string::npos);
  const auto capacities = parse_distserve_capacities("model,tp,pp,max_num_tokens\nm,1,0,5\n");
  EXPECT_EQ(capacities.error().message, "line 2: pp: must be a whole number from 1 to 4096 (got '0')");
}

// Given copies of the files with one byte changed: each is refused with a message, or makes a model or an error.
TEST(DistServeModel, ForeignBytes) {
  Rng rng(7, "fuzz");
  const std::string letters = "0123456789.-e{}[],:\" ";
  const auto mutate = [&](std::string text) {
    const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1));
    const auto letter = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(letters.size()) - 1));
    text[at] = rng.integer(0, 3) == 0 ? static_cast<char>(rng.integer(-128, 127)) : letters[letter];
    return text;
  };
  int refused = 0;
  int made = 0;
  for (int round = 0; round < effort(2000, 20'000); ++round) {
    const auto profile = parse_distserve_profile(round % 2 == 0 ? mutate(kProfile) : kProfile);
    const auto capacities = parse_distserve_capacities(round % 2 == 1 ? mutate(kCapacities) : kCapacities);
    if (!profile.ok()) {
      EXPECT_FALSE(profile.error().message.empty());
      ++refused;
    }
    if (!capacities.ok()) {
      EXPECT_FALSE(capacities.error().message.empty());
    }
    if (!profile.ok() || !capacities.ok()) continue;
    const auto model = DistServeModel::make(*profile, *capacities, "opt-13b", {1, 1});
    if (!model.ok()) continue;
    ++made;
    EXPECT_GE(model->iteration_s(prefill_batch(1, 10)), 0);
  }
  EXPECT_GT(refused, effort(66, 1000));
  EXPECT_GT(made, effort(66, 1000));
}

}  // namespace
}  // namespace windlass::planner
