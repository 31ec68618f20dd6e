// Loops written so that a compiler vectorises them without reordering a sum by itself: dot products keep eight running sums.
#include "worker/backend/cpu/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <cblas.h>

#include "worker/backend/backend.h"

namespace windlass::worker::cpu {
namespace {

// Rows of queries up to which attention walks the cache directly; above it, gathering and a product pay.
constexpr std::int64_t kDirectRows = 16;
// Bound on the scores held at once by the gathered path.
constexpr std::int64_t kScoreElements = 1 << 20;

float dot(const float* a, const float* b, std::int64_t n) {
  float sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float total = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

// Softmax of the first `visible` scores; the rest becomes 0.
void masked_softmax(float* scores, std::int64_t visible, std::int64_t length) {
  float highest = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < visible; ++i) highest = std::max(highest, scores[i]);
  float total = 0;
  for (std::int64_t i = 0; i < visible; ++i) {
    scores[i] = std::exp(scores[i] - highest);
    total += scores[i];
  }
  const float scale = 1.0F / total;
  for (std::int64_t i = 0; i < visible; ++i) scores[i] *= scale;
  std::fill(scores + visible, scores + length, 0.0F);
}

float* grown(std::vector<float>& buffer, std::int64_t size) {
  if (static_cast<std::int64_t>(buffer.size()) < size) buffer.resize(static_cast<std::size_t>(size));
  return buffer.data();
}

// Decode, or a few tokens: reads the cache in place, block by block.
void direct_attention(const ModelConfig& config, const float* q, std::int64_t q_stride, std::int64_t tokens, std::int64_t start,
                      const PagedKv& kv, float* out, AttentionScratch& scratch) {
  const std::int64_t dim = config.head_dim;
  const std::int64_t group = config.heads / config.kv_heads;
  const std::int64_t row_size = config.kv_size();
  const std::int64_t length = start + tokens;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const auto row_of = [&](const float* base, std::int64_t position) {
    return base +
           (kv.blocks[static_cast<std::size_t>(position / kKvBlockTokens)] * kKvBlockTokens + position % kKvBlockTokens) *
               row_size;
  };
  float* scores = grown(scratch.scores, config.heads * length);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t visible = start + t + 1;
    for (std::int64_t p = 0; p < visible; ++p) {
      const float* key = row_of(kv.keys, p);
      for (std::int64_t h = 0; h < config.heads; ++h) {
        scores[h * length + p] = dot(q + t * q_stride + h * dim, key + (h / group) * dim, dim) * scale;
      }
    }
    float* mixed = out + t * config.q_size();
    std::fill(mixed, mixed + config.q_size(), 0.0F);
    for (std::int64_t h = 0; h < config.heads; ++h) masked_softmax(scores + h * length, visible, visible);
    for (std::int64_t p = 0; p < visible; ++p) {
      const float* value = row_of(kv.values, p);
      for (std::int64_t h = 0; h < config.heads; ++h) {
        const float weight = scores[h * length + p];
        const float* from = value + (h / group) * dim;
        float* to = mixed + h * dim;
        for (std::int64_t d = 0; d < dim; ++d) to[d] += weight * from[d];
      }
    }
  }
}

// Prefill: gathers one kv head at a time and lets BLAS do the two products for all query heads of its group.
void gathered_attention(const ModelConfig& config, const float* q, std::int64_t q_stride, std::int64_t tokens,
                        std::int64_t start, const PagedKv& kv, float* out, AttentionScratch& scratch) {
  const std::int64_t dim = config.head_dim;
  const std::int64_t group = config.heads / config.kv_heads;
  const std::int64_t row_size = config.kv_size();
  const std::int64_t length = start + tokens;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const std::int64_t tile = std::clamp<std::int64_t>(kScoreElements / (length * group), 1, tokens);
  float* keys = grown(scratch.keys, length * dim);
  float* values = grown(scratch.values, length * dim);
  float* queries = grown(scratch.queries, tile * group * dim);
  float* mixed = grown(scratch.mixed, tile * group * dim);
  float* scores = grown(scratch.scores, tile * group * length);
  for (std::int64_t g = 0; g < config.kv_heads; ++g) {
    for (std::int64_t p = 0; p < length; ++p) {
      const std::int64_t row = kv.blocks[static_cast<std::size_t>(p / kKvBlockTokens)] * kKvBlockTokens + p % kKvBlockTokens;
      std::copy_n(kv.keys + row * row_size + g * dim, dim, keys + p * dim);
      std::copy_n(kv.values + row * row_size + g * dim, dim, values + p * dim);
    }
    for (std::int64_t first = 0; first < tokens; first += tile) {
      const std::int64_t rows = std::min(tile, tokens - first);
      const std::int64_t seen = start + first + rows;  // keys that any row of this tile may see
      // Row t * group + h of the products is query head g * group + h of token first + t.
      for (std::int64_t t = 0; t < rows; ++t) {
        std::copy_n(q + (first + t) * q_stride + g * group * dim, group * dim, queries + t * group * dim);
      }
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(rows * group), static_cast<int>(seen),
                  static_cast<int>(dim), scale, queries, static_cast<int>(dim), keys, static_cast<int>(dim), 0.0F, scores,
                  static_cast<int>(seen));
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t h = 0; h < group; ++h) masked_softmax(scores + (t * group + h) * seen, start + first + t + 1, seen);
      }
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(rows * group), static_cast<int>(dim),
                  static_cast<int>(seen), 1.0F, scores, static_cast<int>(seen), values, static_cast<int>(dim), 0.0F, mixed,
                  static_cast<int>(dim));
      for (std::int64_t t = 0; t < rows; ++t) {
        std::copy_n(mixed + t * group * dim, group * dim, out + (first + t) * config.q_size() + g * group * dim);
      }
    }
  }
}

}  // namespace

void matmul(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out, bool accumulate) {
  const float beta = accumulate ? 1.0F : 0.0F;
  if (tokens == 1) {
    cblas_sgemv(CblasRowMajor, CblasNoTrans, static_cast<int>(out), static_cast<int>(in), 1.0F, w, static_cast<int>(in), x, 1,
                beta, y, 1);
    return;
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(tokens), static_cast<int>(out), static_cast<int>(in),
              1.0F, x, static_cast<int>(in), w, static_cast<int>(in), beta, y, static_cast<int>(out));
}

void rms_norm(const float* x, const float* weight, float* y, std::int64_t tokens, std::int64_t hidden, float eps) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* row = x + t * hidden;
    float* to = y + t * hidden;
    const float scale = 1.0F / std::sqrt(dot(row, row, hidden) / static_cast<float>(hidden) + eps);
    for (std::int64_t i = 0; i < hidden; ++i) to[i] = row[i] * scale * weight[i];
  }
}

void swiglu(const float* gate_up, float* out, std::int64_t tokens, std::int64_t intermediate) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* gate = gate_up + t * 2 * intermediate;
    const float* up = gate + intermediate;
    float* to = out + t * intermediate;
    for (std::int64_t i = 0; i < intermediate; ++i) to[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
  }
}

std::vector<double> rope_frequencies(const ModelConfig& config) {
  const std::int64_t half = config.head_dim / 2;
  std::vector<double> frequencies(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i) {
    frequencies[static_cast<std::size_t>(i)] =
        std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
  }
  const RopeScaling& scaling = config.rope_scaling;
  for (double& frequency : frequencies) {
    if (scaling.kind == RopeScaling::Kind::kLinear) {
      frequency /= scaling.factor;
    } else if (scaling.kind == RopeScaling::Kind::kLlama3) {
      const double wavelength = 2 * std::numbers::pi / frequency;
      const double turns = scaling.original_max_tokens / wavelength;  // turns within the trained context
      if (turns < scaling.low_freq_factor) {
        frequency /= scaling.factor;
      } else if (turns <= scaling.high_freq_factor) {
        const double smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency;
      }
    }
  }
  return frequencies;
}

RopeTable make_rope_table(const ModelConfig& config, std::int64_t positions) {
  const std::vector<double> frequencies = rope_frequencies(config);
  RopeTable table;
  table.half = config.head_dim / 2;
  table.cos.reserve(static_cast<std::size_t>(positions * table.half));
  table.sin.reserve(static_cast<std::size_t>(positions * table.half));
  for (std::int64_t p = 0; p < positions; ++p) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(p) * frequency;
      table.cos.push_back(static_cast<float>(std::cos(angle)));
      table.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

void rope(float* row, std::int64_t heads, const RopeTable& table, std::int64_t position) {
  const float* cos = table.cos.data() + position * table.half;
  const float* sin = table.sin.data() + position * table.half;
  for (std::int64_t h = 0; h < heads; ++h) {
    float* first = row + h * 2 * table.half;
    float* second = first + table.half;
    for (std::int64_t i = 0; i < table.half; ++i) {
      const float a = first[i];
      const float b = second[i];
      first[i] = a * cos[i] - b * sin[i];
      second[i] = b * cos[i] + a * sin[i];
    }
  }
}

void attention(const ModelConfig& config, const float* q, std::int64_t q_stride, std::int64_t tokens, std::int64_t start,
               const PagedKv& kv, float* out, AttentionScratch& scratch) {
  if (tokens < kDirectRows) {
    direct_attention(config, q, q_stride, tokens, start, kv, out, scratch);
  } else {
    gathered_attention(config, q, q_stride, tokens, start, kv, out, scratch);
  }
}

void set_blas_threads(int threads) { openblas_set_num_threads(threads); }

}  // namespace windlass::worker::cpu
