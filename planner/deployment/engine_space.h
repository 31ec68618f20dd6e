// EngineSpace: the settings that a type of engine really has, so that strategies choose only what a worker can be told.
//
// EngineSettings{} stands for an engine's own defaults: it is in every space, and such a worker gets none. Settings of memory
// (pages, the share of them left free, prefix caching) are properties of an engine that nobody chooses, so every space allows
// them. Which argument each setting becomes, and the versions that were compared: controller/runtime/engine_args.cc.
#pragma once

#include <limits>
#include <vector>

#include "planner/catalog/dtype.h"
#include "planner/catalog/engine_type.h"
#include "planner/deployment/deployment.h"

namespace windlass::planner {

struct IntRange {
  int least = 1, most = std::numeric_limits<int>::max();

  [[nodiscard]] bool holds(int value) const { return least <= value && value <= most; }
  bool operator==(const IntRange&) const = default;
};

// The default holds everything, as for a SCENARIO, whose engine is simulated.
struct EngineSpace {
  std::vector<Batching> batchings{kAllBatchings.begin(), kAllBatchings.end()};  // the engine's own first
  IntRange max_sequences, max_batch_tokens;
  std::vector<DType> precisions = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8, DType::kInt8};
  bool scheduling = true;        // prompt order, decode admission, padded chunks, swapping
  bool length_predictor = true;  // next to the model (WorkerSpec::length_predictor)
  bool power_share = true;       // of its GPUs (WorkerSpec::power_share)

  [[nodiscard]] bool holds(Batching batching) const;
  [[nodiscard]] bool holds(const EngineSettings& settings) const;
  [[nodiscard]] bool holds(const WorkerSpec& spec) const;
  // The settings if the space holds them; otherwise those of the engine that come closest: its own batching and order where it
  // lacks the wanted ones, and the nearest numbers.
  [[nodiscard]] EngineSettings nearest(EngineSettings settings) const;
};

// What workers of this type can be told.
[[nodiscard]] EngineSpace space_of(EngineType type);

// How a worker of this type schedules without any settings. vLLM since 0.14, SGLang since 0.4 and TensorRT-LLM's PyTorch
// backend schedule ahead by default.
[[nodiscard]] EngineSettings own_settings(EngineType type);

}  // namespace windlass::planner
