// A second, independent and very plain implementation of the forward pass: double precision, one token at a time, no cache, no
// BLAS, straight from the formulas. Slow on purpose; the backends are compared with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace windlass::worker::testing {

using Row = std::vector<double>;

inline Row times(const std::vector<float>& matrix, std::int64_t first_row, std::int64_t rows, const Row& x) {
  Row y(static_cast<std::size_t>(rows), 0.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < x.size(); ++c) {
      y[static_cast<std::size_t>(r)] +=
          static_cast<double>(matrix[static_cast<std::size_t>(first_row + r) * x.size() + c]) * x[c];
    }
  }
  return y;
}

// The value of an 8-bit code, without its row's scale.
inline double meaning(std::uint8_t code, WeightFormat format) {
  if (format == WeightFormat::kInt8) return code < 128 ? code : code - 256;
  const int exponent = code >> 3U & 15;
  const double magnitude = std::ldexp(exponent == 0 ? code & 7 : 8 + (code & 7), std::max(exponent, 1) - 10);
  return code < 128 ? magnitude : -magnitude;
}

// A BF16 number: sign, 8 bits of exponent, 7 bits of mantissa.
inline double meaning(std::uint16_t half) {
  const int exponent = half >> 7U & 255;
  const double magnitude = std::ldexp(exponent == 0 ? half & 127 : 128 + (half & 127), std::max(exponent, 1) - 134);
  return half < 0x8000 ? magnitude : -magnitude;
}

inline Row times(const WeightMatrix& matrix, std::int64_t first_row, std::int64_t rows, const Row& x) {
  if (matrix.format == WeightFormat::kFp32) return times(matrix.values, first_row, rows, x);
  if (matrix.format == WeightFormat::kBf16) {
    std::vector<float> numbers(matrix.halves.size());  // exact in FP32
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(meaning(matrix.halves[i]));
    return times(numbers, first_row, rows, x);
  }
  Row y(static_cast<std::size_t>(rows), 0.0);
  for (std::size_t r = 0; r < y.size(); ++r) {
    const std::size_t row = static_cast<std::size_t>(first_row) + r;
    for (std::size_t c = 0; c < x.size(); ++c) y[r] += meaning(matrix.codes[row * x.size() + c], matrix.format) * x[c];
    y[r] *= static_cast<double>(matrix.scales[row]);
  }
  return y;
}

inline Row normalised(const Row& x, const std::vector<float>& weight, double eps) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row y = x;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] *= scale * static_cast<double>(weight[i]);
  return y;
}

inline Row centred(Row x) {
  double mean = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (double& v : x) v -= mean;
  return x;
}

inline void add(Row& x, const std::vector<float>& bias, std::size_t from = 0) {
  if (bias.empty()) return;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += static_cast<double>(bias[from + i]);
}

inline Row normalised(const ModelConfig& config, const Row& x, const NormWeights& weights) {
  Row y = normalised(config.norm == Norm::kLayer ? centred(x) : x, weights.weight, config.norm_eps);
  add(y, weights.bias);
  return y;
}

inline Row mlp(const ModelConfig& config, const MlpWeights& weights, const Row& x) {
  const auto rows = weights.in.elements() / static_cast<std::int64_t>(x.size());
  Row inner = times(weights.in, 0, rows, x);
  add(inner, weights.in_bias);
  if (config.activation == Activation::kRelu) {
    for (double& v : inner) v = std::max(v, 0.0);
  } else {
    const auto half = inner.size() / 2;
    for (std::size_t i = 0; i < half; ++i) inner[i] = inner[i] / (1 + std::exp(-inner[i])) * inner[half + i];
    inner.resize(half);
  }
  Row out = times(weights.out, 0, config.hidden_size, inner);
  add(out, weights.out_bias);
  return out;
}

// Computes every expert, and adds the best ones weighted by the softmax of the router's logits.
inline Row mixture(const ModelConfig& config, const LayerWeights& layer, const Row& x) {
  Row shares = times(layer.router, 0, config.experts, x);
  for (double& share : shares) share = std::exp(share);
  Row best = shares;
  std::sort(best.rbegin(), best.rend());
  const double least = best[static_cast<std::size_t>(config.experts_per_token) - 1];
  double total = 0;
  for (const double share : shares) total += share >= least || !config.normalise_expert_weights ? share : 0;
  Row sum(x.size(), 0.0);
  for (std::size_t expert = 0; expert < shares.size(); ++expert) {
    const Row said = mlp(config, layer.experts[expert], x);
    for (std::size_t i = 0; i < sum.size() && shares[expert] >= least; ++i) sum[i] += shares[expert] / total * said[i];
  }
  return sum;
}

// Normalises each head separately.
inline void normalise_heads(Row& row, const std::vector<float>& weight, double eps) {
  if (weight.empty()) return;
  for (std::size_t head = 0; head < row.size(); head += weight.size()) {
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(head);
    const Row one = normalised(Row(begin, begin + static_cast<std::ptrdiff_t>(weight.size())), weight, eps);
    std::copy(one.begin(), one.end(), begin);
  }
}

// Rotates each pair (i, i + d/2) of every head as a complex number by position * theta^(-2i/d).
inline void rotate(Row& row, std::int64_t head_dim, std::int64_t position, double theta) {
  for (std::size_t head = 0; head < row.size(); head += static_cast<std::size_t>(head_dim)) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      const double angle =
          static_cast<double>(position) / std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      double& real = row[head + static_cast<std::size_t>(i)];
      double& imaginary = row[head + static_cast<std::size_t>(i + head_dim / 2)];
      const double r = real * std::cos(angle) - imaginary * std::sin(angle);
      imaginary = real * std::sin(angle) + imaginary * std::cos(angle);
      real = r;
    }
  }
}

// Logits after every token of the sequence: (tokens, vocab).
inline std::vector<Row> reference_logits(const ModelConfig& config, const ModelWeights& weights,
                                         const std::vector<std::int32_t>& tokens) {
  const std::int64_t d = config.head_dim;
  std::vector<Row> stream;
  for (const std::int32_t token : tokens) {
    const auto at = weights.embedding.values.begin() + token * config.embedding_width();
    stream.emplace_back(at, at + config.embedding_width());
    if (config.embedding_size > 0) stream.back() = times(weights.project_in, 0, config.hidden_size, stream.back());
    const std::size_t position = stream.size() - 1 + kLearnedPositionsOffset;
    if (config.positions == Positions::kLearned)
      add(stream.back(), weights.positions, position * static_cast<std::size_t>(config.hidden_size));
  }
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    const LayerWeights& layer = weights.layers[l];
    const std::int64_t window = config.window_of(static_cast<std::int64_t>(l));
    std::vector<Row> q;
    std::vector<Row> k;
    std::vector<Row> v;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const Row x = config.norm_after ? stream[t] : normalised(config, stream[t], layer.attention_norm);
      q.push_back(times(layer.qkv, 0, config.q_size(), x));
      k.push_back(times(layer.qkv, config.q_size(), config.kv_size(), x));
      v.push_back(times(layer.qkv, config.q_size() + config.kv_size(), config.kv_size(), x));
      add(q.back(), layer.qkv_bias);
      add(k.back(), layer.qkv_bias, q.back().size());
      add(v.back(), layer.qkv_bias, q.back().size() + k.back().size());
      normalise_heads(q.back(), layer.q_norm, config.norm_eps);
      normalise_heads(k.back(), layer.k_norm, config.norm_eps);
      if (config.positions == Positions::kLearned) continue;
      rotate(q.back(), d, static_cast<std::int64_t>(t), config.rope_theta);
      rotate(k.back(), d, static_cast<std::int64_t>(t), config.rope_theta);
    }
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const std::size_t from =
          window > 0 && t + 1 > static_cast<std::size_t>(window) ? t + 1 - static_cast<std::size_t>(window) : 0;
      Row mixed(static_cast<std::size_t>(config.q_size()), 0.0);
      for (std::int64_t h = 0; h < config.heads; ++h) {
        const std::int64_t g = h / (config.heads / config.kv_heads);
        Row probability;
        double total = 0;
        for (std::size_t s = from; s <= t; ++s) {
          double score = 0;
          for (std::int64_t i = 0; i < d; ++i)
            score += q[t][static_cast<std::size_t>(h * d + i)] * k[s][static_cast<std::size_t>(g * d + i)];
          probability.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
          total += probability.back();
        }
        for (std::size_t s = from; s <= t; ++s) {
          for (std::int64_t i = 0; i < d; ++i) {
            mixed[static_cast<std::size_t>(h * d + i)] +=
                probability[s - from] / total * v[s][static_cast<std::size_t>(g * d + i)];
          }
        }
      }
      Row out = times(layer.attention_out, 0, config.hidden_size, mixed);
      add(out, layer.out_bias);
      for (std::size_t i = 0; i < out.size(); ++i) stream[t][i] += out[i];
      if (config.norm_after) stream[t] = normalised(config, stream[t], layer.attention_norm);
      const Row x = config.norm_after ? stream[t] : normalised(config, stream[t], layer.mlp_norm);
      const Row added = layer.experts.empty() ? mlp(config, layer.mlp, x) : mixture(config, layer, x);
      for (std::size_t i = 0; i < added.size(); ++i) stream[t][i] += added[i];
      if (config.norm_after) stream[t] = normalised(config, stream[t], layer.mlp_norm);
    }
  }
  std::vector<Row> logits;
  for (Row x : stream) {
    if (!config.norm_after) x = normalised(config, x, weights.final_norm);
    if (config.embedding_size > 0) x = times(weights.project_out, 0, config.embedding_size, x);
    logits.push_back(times(weights.output_matrix(), 0, config.vocab_size, x));
  }
  return logits;
}

}  // namespace windlass::worker::testing
