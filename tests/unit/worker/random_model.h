// Small models with random shapes and weights, for tests of the backends.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planner/base/rng.h"
#include "worker/model/config.h"
#include "worker/model/large_memory.h"
#include "worker/model/weights.h"

namespace windlass::worker::testing {

inline WeightMatrix weight_matrix(const std::vector<float>& values, std::int64_t columns, WeightFormat format) {
  WeightMatrix matrix{format};
  const auto width = static_cast<std::size_t>(columns);
  switch (format) {
    case WeightFormat::kFp32: reserve_large(matrix.values, values.size()); break;
    case WeightFormat::kBf16: reserve_large(matrix.halves, values.size()); break;
    default: reserve_large(matrix.codes, values.size());
  }
  for (std::size_t at = 0; at < values.size(); at += width)
    static_cast<void>(append_row(matrix, std::span(values).subspan(at, width), 0, columns));  // its numbers are finite
  return matrix;
}

inline ModelWeights random_weights(const ModelConfig& config, std::uint64_t seed, WeightFormat format = WeightFormat::kFp32) {
  Rng rng(seed, "weights");
  const auto fill = [&](std::int64_t count, double scale, double around = 0) {
    std::vector<float> values;
    reserve_large(values, static_cast<std::size_t>(count));
    values.resize(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(around + rng.uniform(-scale, scale));
    return values;
  };
  const double s = 1.7 / std::sqrt(static_cast<double>(config.hidden_size));
  const auto norm = [&] {
    NormWeights made;
    made.weight = fill(config.hidden_size, 0.3, 1);
    if (config.norm == Norm::kLayer) made.bias = fill(config.hidden_size, 0.3);
    return made;
  };
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return weight_matrix(fill(rows * columns, s), columns, format);
  };
  const auto mlp = [&](std::int64_t width, bool biases) {
    MlpWeights made;
    made.in = matrix(config.mlp_in_size(width), config.hidden_size);
    made.out = matrix(config.hidden_size, width);
    if (biases) {
      made.in_bias = fill(config.mlp_in_size(width), 0.5);
      made.out_bias = fill(config.hidden_size, 0.5);
    }
    return made;
  };
  ModelWeights weights;
  weights.embedding.values = fill(config.vocab_size * config.embedding_width(), 1.5);
  weights.project_in = fill(config.hidden_size * config.embedding_size, s);
  if (config.positions == Positions::kLearned)
    weights.positions = fill((config.max_context_tokens + kLearnedPositionsOffset) * config.hidden_size, 0.5);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    LayerWeights layer;
    layer.attention_norm = norm();
    layer.qkv = matrix(config.q_size() + 2 * config.kv_size(), config.hidden_size);
    if (config.qkv_bias) layer.qkv_bias = fill(config.q_size() + 2 * config.kv_size(), 0.5);
    if (config.qk_norm) {
      layer.q_norm = fill(config.head_dim, 0.3, 1);
      layer.k_norm = fill(config.head_dim, 0.3, 1);
    }
    layer.attention_out = matrix(config.hidden_size, config.q_size());
    if (config.attention_out_bias) layer.out_bias = fill(config.hidden_size, 0.5);
    layer.mlp_norm = norm();
    if (config.has_experts(i)) {
      layer.router = fill(config.experts * config.hidden_size, s);
      for (std::int64_t n = config.experts; n > 0; --n) layer.experts.push_back(mlp(config.expert_intermediate_size, false));
    } else {
      layer.mlp = mlp(config.intermediate_size, config.mlp_bias);
    }
    weights.layers.push_back(std::move(layer));
  }
  if (!config.norm_after) weights.final_norm = norm();
  weights.project_out = fill(config.embedding_size * config.hidden_size, s);
  if (!config.tie_word_embeddings) weights.lm_head.values = fill(config.vocab_size * config.embedding_width(), s);
  return weights;
}

inline ModelConfig random_config(Rng& rng) {
  ModelConfig config;
  config.kv_heads = rng.integer(1, 3);
  config.heads = config.kv_heads * rng.integer(1, 3);
  config.head_dim = 2 * rng.integer(1, 9);
  config.hidden_size = rng.integer(8, 48);
  config.layers = rng.integer(1, 3);
  config.intermediate_size = rng.integer(8, 60);
  config.vocab_size = rng.integer(10, 80);
  config.max_context_tokens = 128;
  config.tie_word_embeddings = rng.uniform() < 0.3;
  config.rope_theta = rng.uniform() < 0.5 ? 10000 : 500000;
  config.qkv_bias = rng.uniform() < 0.5;
  config.attention_out_bias = rng.uniform() < 0.3;
  config.qk_norm = rng.uniform() < 0.5;
  config.mlp_bias = rng.uniform() < 0.3;
  if (rng.uniform() < 0.3) config.norm = Norm::kLayer;
  if (rng.uniform() < 0.3) config.positions = Positions::kLearned;
  if (rng.uniform() < 0.3) config.activation = Activation::kRelu;
  if (rng.uniform() < 0.4) {
    config.experts = rng.integer(1, 6);
    config.experts_per_token = rng.integer(1, std::min<std::int64_t>(3, config.experts));
    config.expert_intermediate_size = rng.integer(4, 40);
    config.normalise_expert_weights = rng.uniform() < 0.5;
    for (std::int64_t i = 0; i < config.layers; ++i) config.dense_mlp.push_back(rng.uniform() < 0.3);
  }
  if (rng.uniform() < 0.6) {
    for (std::int64_t i = 0; i < config.layers; ++i) config.windows.push_back(rng.uniform() < 0.3 ? 0 : rng.integer(1, 40));
  }
  config.norm_after = config.experts == 0 && rng.uniform() < 0.3;
  if (rng.uniform() < 0.2) config.embedding_size = rng.integer(4, 40);
  return config;
}

// The weights of a worker with only these blocks.
inline ModelWeights part_of(const ModelConfig& config, const ModelWeights& all, BlockRange blocks) {
  ModelWeights part;
  const bool begins = blocks.first == 0, ends = blocks.end == config.layers;
  if (begins || (ends && config.tie_word_embeddings)) part.embedding = all.embedding;
  if (begins) part.positions = all.positions;
  if (begins) part.project_in = all.project_in;
  part.layers.assign(all.layers.begin() + blocks.first, all.layers.begin() + blocks.end);
  if (ends) part.final_norm = all.final_norm;
  if (ends) part.project_out = all.project_out;
  if (ends) part.lm_head = all.lm_head;
  return part;
}

inline std::vector<std::int32_t> random_tokens(Rng& rng, const ModelConfig& config, std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (; count > 0; --count) tokens.push_back(static_cast<std::int32_t>(rng.integer(0, config.vocab_size - 1)));
  return tokens;
}

}  // namespace windlass::worker::testing
