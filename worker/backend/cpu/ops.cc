// Loops that a compiler can vectorise without reordering sums: dot products keep eight running sums.
#include "worker/backend/cpu/ops.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/backend/vectors.h"

namespace windlass::worker::cpu {
namespace {

// Sum of term(0) to term(n - 1).
template <class Term>
float sum_of(std::int64_t n, const Term& term) {
  float sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += term(i + lane);
  }
  float total = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  for (; i < n; ++i) total += term(i);
  return total;
}

float dot(const float* a, const float* b, std::int64_t n) {
  return sum_of(n, [=](std::int64_t i) { return a[i] * b[i]; });
}

float sum(const float* a, std::int64_t n) {
  return sum_of(n, [=](std::int64_t i) { return a[i]; });
}

// silu(g) = g * e^g / (1 + e^g) = g / (1 + e^-g): uses the form whose exponent is not positive.
template <int kLanes>
inline __attribute__((always_inline)) void swiglu_vector(const float* gate, const float* up, float* out) {
  const Vector<kLanes> g = at<kLanes>(gate);
  const Vector<kLanes> zero = {};
  Vector<kLanes> e = g < zero ? g : -g;
  exp_of<kLanes>(e);
  at<kLanes>(out) = (g < zero ? g * e : g) / (e + 1.0F) * at<kLanes>(up);
}

struct SwiGluRow {
  template <int kLanes>
  static inline __attribute__((always_inline)) void run(const float* gate, const float* up, float* out, std::int64_t count) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) swiglu_vector<kLanes>(gate + i, up + i, out + i);
    if (i == count) return;
    float rest[3][kLanes] = {};
    std::copy(gate + i, gate + count, rest[0]);
    std::copy(up + i, up + count, rest[1]);
    swiglu_vector<kLanes>(rest[0], rest[1], rest[2]);
    std::copy_n(rest[2], count - i, out + i);
  }
};

}  // namespace

void matmul_by_dots(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < out; ++i) y[t * out + i] = dot(x + t * in, w + i * in, in);
  }
}

void set_bias(const float* bias, float* y, std::int64_t tokens, std::int64_t out) {
  for (std::int64_t t = 0; t < tokens; ++t) std::copy_n(bias, out, y + t * out);
}

void add_bias(const float* bias, float* y, std::int64_t tokens, std::int64_t out) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < out; ++i) y[t * out + i] += bias[i];
  }
}

void rms_norm(const float* x, const float* weight, float* y, std::int64_t tokens, std::int64_t hidden, float eps) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* row = x + t * hidden;
    float* to = y + t * hidden;
    const float scale = 1.0F / std::sqrt(dot(row, row, hidden) / static_cast<float>(hidden) + eps);
    for (std::int64_t i = 0; i < hidden; ++i) to[i] = row[i] * scale * weight[i];
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float* y, std::int64_t tokens, std::int64_t hidden,
                float eps) {
  const auto count = static_cast<float>(hidden);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* row = x + t * hidden;
    float* to = y + t * hidden;
    const float mean = sum(row, hidden) / count;
    for (std::int64_t i = 0; i < hidden; ++i) to[i] = row[i] - mean;
    const float scale = 1.0F / std::sqrt(dot(to, to, hidden) / count + eps);
    for (std::int64_t i = 0; i < hidden; ++i) to[i] = to[i] * scale * weight[i] + bias[i];
  }
}

void relu(float* y, std::int64_t tokens, std::int64_t intermediate) {
  for (std::int64_t i = 0; i < tokens * intermediate; ++i) y[i] = std::max(y[i], 0.0F);
}

void swiglu(const float* gate_up, float* out, std::int64_t tokens, std::int64_t intermediate) {
  const auto row = Compiled<SwiGluRow, void(const float*, const float*, float*, std::int64_t)>::for_this_processor();
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* gate = gate_up + t * 2 * intermediate;
    row(gate, gate + intermediate, out + t * intermediate, intermediate);
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
  if (scaling.kind == RopeScaling::Kind::kFactors) {
    for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= static_cast<double>(scaling.factors[i]);
  }
  for (double& frequency : frequencies) {
    if (scaling.kind == RopeScaling::Kind::kLinear) {
      frequency /= scaling.factor;
    } else if (scaling.kind == RopeScaling::Kind::kLlama3) {
      const double wavelength = 2 * std::numbers::pi / frequency;
      const double turns = scaling.original_max_tokens / wavelength;  // rotations within the trained context
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

}  // namespace windlass::worker::cpu
