// Random models of the kinds that the CUDA backend serves, with weights in the form it expects.
#pragma once

#include <vector>

#include "planner/base/rng.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/model/config.h"
#include "worker/model/ggml_blocks.h"
#include "worker/model/weights.h"

namespace windlass::worker::testing {

// With rounded activations, a token may switch between two experts whose logits are almost equal; so every token uses all
// experts.
inline ModelConfig random_config(Rng& rng, cuda::Precision precision) {
  ModelConfig config = random_config(rng);
  if (precision == cuda::Precision::kBf16) config.experts_per_token = config.experts;
  return config;
}

// Provides weights block by block, as load_weights() does. REQUIRES: both arguments outlive the result.
inline cuda::WeightSource source_of(const ModelConfig& config, const ModelWeights& weights) {
  return [&config, &weights](BlockRange blocks) -> Result<ModelWeights> { return part_of(config, weights, blocks); };
}

// All weights exact in BF16, so that only the arithmetic differs.
inline ModelWeights rounded(ModelWeights weights) {
  const auto round = [](std::vector<float>& values) {
    for (float& value : values) value = float_from_bf16(bf16_from_float(value));
  };
  for (LayerWeights& layer : weights.layers) {
    for (WeightMatrix* matrix : {&layer.qkv, &layer.attention_out, &layer.mlp.in, &layer.mlp.out}) round(matrix->values);
    for (MlpWeights& expert : layer.experts) {
      for (WeightMatrix* matrix : {&expert.in, &expert.out}) round(matrix->values);
    }
  }
  round(weights.embedding.values);
  round(weights.project_in);
  round(weights.project_out);
  round(weights.lm_head.values);
  return weights;
}

}  // namespace windlass::worker::testing
