// The settings that each type of engine has.
#include "planner/deployment/engine_space.h"

#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass::planner {
namespace {

EngineSettings chosen(Batching batching, int sequences, int tokens) {
  EngineSettings settings;
  settings.batching = batching;
  settings.max_sequences = sequences;
  settings.max_batch_tokens = tokens;
  return settings;
}

EngineSettings random_settings(Rng& rng) {
  const auto any = [&](const auto& values) {
    return values[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(values.size()) - 1))];
  };
  EngineSettings settings;
  settings.batching = any(kAllBatchings);
  settings.max_sequences = static_cast<int>(rng.integer(1, 10'000));
  settings.max_batch_tokens = static_cast<int>(rng.integer(1, 100'000));
  settings.prompt_order = any(kAllPromptOrders);
  settings.prompt_order_window = static_cast<int>(rng.integer(1, 30));
  settings.admission = any(kAllDecodeAdmissions);
  settings.preemption = any(kAllPreemptions);
  settings.pads_chunks = rng.uniform() < 0.5;
  if (rng.uniform() < 0.5) settings.precision = any(EngineSpace().precisions);
  return settings;
}

// Given the settings that an engine has and some that it lacks; expects a space with the former only. An engine's own defaults
// are in each space; a length predictor and a power cap in none.
TEST(EngineSpace, HoldsWhatTheEngineHas) {
  using enum Batching;
  struct Case {
    EngineType type;
    EngineSettings settings;
    bool held;
  };
  for (const Case& each : std::vector<Case>{
           {EngineType::kWindlass, chosen(kSarathi, 64, 512), true},
           {EngineType::kWindlass, chosen(kSarathi, 1024, 65536), true},
           {EngineType::kWindlass, chosen(kSarathi, 1025, 512), false},
           {EngineType::kWindlass, chosen(kSarathi, 64, 65537), false},
           {EngineType::kWindlass, chosen(kVllm, 64, 512), false},
           {EngineType::kVLLM, chosen(kVllmV1, 64, 512), true},
           {EngineType::kVLLM, chosen(kSarathi, 64, 512), false},
           {EngineType::kSGLang, chosen(kSarathi, 64, 512), true},
           {EngineType::kSGLang, chosen(kVllm, 64, 4096), true},
           {EngineType::kSGLang, chosen(kMixed, 64, 4096), false},
           {EngineType::kTensorRTLLM, chosen(kSarathi, 64, 512), true},
           {EngineType::kTensorRTLLM, chosen(kMixed, 64, 4096), false},
           {EngineType::kLlamaCpp, chosen(kSarathi, 64, 512), true},
           {EngineType::kLlamaCpp, chosen(kOrca, 64, 512), false},
       }) {
    EXPECT_EQ(space_of(each.type).holds(each.settings), each.held)
        << to_string(each.type) << " " << to_string(each.settings.batching) << " " << each.settings.max_sequences;
  }
  for (const EngineType type : kAllEngineTypes) {
    const EngineSpace space = space_of(type);
    EXPECT_TRUE(space.holds(EngineSettings{}));
    EXPECT_TRUE(space.holds(WorkerSpec{"h100", 2}));
    EXPECT_FALSE(space.holds(WorkerSpec{.accelerator = "h100", .length_predictor = true}));
    EXPECT_FALSE(space.holds(WorkerSpec{.accelerator = "h100", .power_share = 0.5}));
    EngineSettings sorts = chosen(space.batchings.front(), 64, 512);
    EXPECT_TRUE(space.holds(sorts));
    sorts.prompt_order = PromptOrder::kShortestFirst;
    EXPECT_FALSE(space.holds(sorts));
    EngineSettings precise = chosen(space.batchings.front(), 64, 512);
    precise.precision = DType::kFloat8;
    EXPECT_EQ(space.holds(precise), type != EngineType::kTensorRTLLM && type != EngineType::kLlamaCpp) << to_string(type);
  }
}

// Given random settings; expects the default space to hold them as they are, and each engine's nearest settings to be in its
// space, with every number that it has.
TEST(EngineSpace, NearestIsHeld) {
  Rng rng(3, "settings");
  for (int i = 0; i < 2000; ++i) {
    const EngineSettings settings = random_settings(rng);
    EXPECT_TRUE(EngineSpace().holds(settings));
    EXPECT_EQ(EngineSpace().nearest(settings), settings);
    for (const EngineType type : kAllEngineTypes) {
      const EngineSpace space = space_of(type);
      const EngineSettings nearest = space.nearest(settings);
      EXPECT_TRUE(space.holds(nearest)) << to_string(type);
      EXPECT_EQ(space.nearest(nearest), nearest);
      EXPECT_EQ(space.max_sequences.holds(settings.max_sequences), nearest.max_sequences == settings.max_sequences);
      EXPECT_EQ(space.max_batch_tokens.holds(settings.max_batch_tokens), nearest.max_batch_tokens == settings.max_batch_tokens);
      EXPECT_EQ(space.holds(settings.batching), nearest.batching == settings.batching);
    }
  }
}

// Given settings that differ from the default in one number or in the batching; expects the worker to be told that number, or
// everything that was chosen with the batching; nothing for the defaults.
TEST(EngineSettings, TellsWhatWasChosen) {
  EXPECT_FALSE(told({}).batching || told({}).max_sequences || told({}).max_batch_tokens || told({}).precision);
  EngineSettings one;
  one.max_sequences = 64;
  EXPECT_EQ(told(one).max_sequences, 64);
  EXPECT_FALSE(told(one).batching || told(one).max_batch_tokens);
  const ToldSettings all = told(chosen(Batching::kSarathi, 256, 2048));
  EXPECT_EQ(all.batching, Batching::kSarathi);
  EXPECT_EQ(all.max_sequences, 256);
  EXPECT_EQ(all.max_batch_tokens, 2048);
}

}  // namespace
}  // namespace windlass::planner
