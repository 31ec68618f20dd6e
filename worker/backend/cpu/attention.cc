// Paged attention in two ways: decode walks the cache tile by tile; prefill gathers a head's keys and values and uses BLAS.
#include <algorithm>
#include <cmath>
#include <limits>

#include <cblas.h>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/vectors.h"

namespace windlass::worker::cpu {
namespace {

// Number of query rows up to which attention walks the cache directly; above it, gathering and a product are faster.
constexpr std::int64_t kDirectRows = 16;
// Limit of scores in memory at once on the gathered path.
constexpr std::int64_t kScoreElements = 1 << 20;
constexpr std::int64_t kTile = kKvBlockTokens;

// One vector per tile: these loops only add and multiply.
using Lanes = Vector<kTile>;
constexpr std::int64_t kLanes = kTile;

// out (kTile) = q (dim) * keys (dim, kTile)
inline __attribute__((always_inline)) void score_tile(const float* q, const float* keys, std::int64_t dim, float* out) {
  Lanes even = {};
  Lanes odd = {};  // two sums, to shorten the dependency chain; head_dim is even
  for (std::int64_t d = 0; d < dim; d += 2) {
    even += q[d] * *reinterpret_cast<const Lanes*>(keys + d * kTile);
    odd += q[d + 1] * *reinterpret_cast<const Lanes*>(keys + (d + 1) * kTile);
  }
  *reinterpret_cast<Lanes*>(out) = even + odd;
}

// out (dim) += weights (count) * values (count, dim)
inline __attribute__((always_inline)) void mix_tile(const float* weights, std::int64_t count, const float* values,
                                                    std::int64_t dim, float* out) {
  std::int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    Lanes sum = *reinterpret_cast<const Lanes*>(out + d);
    for (std::int64_t j = 0; j < count; ++j) sum += weights[j] * *reinterpret_cast<const Lanes*>(values + j * dim + d);
    *reinterpret_cast<Lanes*>(out + d) = sum;
  }
  for (; d < dim; ++d) {
    for (std::int64_t j = 0; j < count; ++j) out[d] += weights[j] * values[j * dim + d];
  }
}

// Softmax of scale * scores (count), in place.
template <int kWidth>
inline __attribute__((always_inline)) void softmax_row(float* scores, float scale, std::int64_t count) {
  float highest = -std::numeric_limits<float>::infinity();
  std::int64_t i = 0;
  if (count >= kWidth) {
    Vector<kWidth> most = at<kWidth>(scores);
    for (i = kWidth; i + kWidth <= count; i += kWidth) {
      const Vector<kWidth> next = at<kWidth>(scores + i);
      most = next > most ? next : most;
    }
    for (int lane = 0; lane < kWidth; ++lane) highest = std::max(highest, most[lane]);
  }
  for (; i < count; ++i) highest = std::max(highest, scores[i]);
  Vector<kWidth> sums = {};
  for (i = 0; i + kWidth <= count; i += kWidth) {
    Vector<kWidth> e = (at<kWidth>(scores + i) - highest) * scale;
    exp_of<kWidth>(e);
    sums += e;
    at<kWidth>(scores + i) = e;
  }
  float total = 0;
  for (int lane = 0; lane < kWidth; ++lane) total += sums[lane];
  for (; i < count; ++i) {
    scores[i] = std::exp((scores[i] - highest) * scale);
    total += scores[i];
  }
  const float share = 1.0F / total;
  for (i = 0; i + kWidth <= count; i += kWidth) at<kWidth>(scores + i) *= share;
  for (; i < count; ++i) scores[i] *= share;
}

struct ScoreTile {
  template <int kLanes>
  static inline __attribute__((always_inline)) void run(const float* q, const float* keys, std::int64_t dim, float* out) {
    score_tile(q, keys, dim, out);
  }
};
struct MixTile {
  template <int kLanes>
  static inline __attribute__((always_inline)) void run(const float* weights, std::int64_t count, const float* values,
                                                        std::int64_t dim, float* out) {
    mix_tile(weights, count, values, dim, out);
  }
};
struct SoftmaxRow {
  template <int kWidth>
  static inline __attribute__((always_inline)) void run(float* scores, float scale, std::int64_t count) {
    softmax_row<kWidth>(scores, scale, count);
  }
};

// The kernels compiled for this processor.
struct TileKernels {
  void (*score)(const float*, const float*, std::int64_t,
                float*) = Compiled<ScoreTile, void(const float*, const float*, std::int64_t, float*)>::for_this_processor();
  void (*mix)(const float*, std::int64_t, const float*, std::int64_t, float*) =
      Compiled<MixTile, void(const float*, std::int64_t, const float*, std::int64_t, float*)>::for_this_processor();
  void (*softmax)(float*, float, std::int64_t) = Compiled<SoftmaxRow, void(float*, float, std::int64_t)>::for_this_processor();
};

const TileKernels& kernels() {
  static const TileKernels kChosen;
  return kChosen;
}

// Softmax over scores `first` to `visible` - 1; sets the others to 0.
void masked_softmax(float* scores, float scale, std::int64_t first, std::int64_t visible, std::int64_t length) {
  std::fill(scores, scores + first, 0.0F);
  kernels().softmax(scores + first, scale, visible - first);
  std::fill(scores + visible, scores + length, 0.0F);
}

// The first position visible to the token at `position`.
std::int64_t first_seen(std::int64_t window, std::int64_t position) {
  return window > 0 ? std::max<std::int64_t>(0, position + 1 - window) : 0;
}

float* grown(std::vector<float>& buffer, std::int64_t size) {
  if (static_cast<std::int64_t>(buffer.size()) < size) buffer.resize(static_cast<std::size_t>(size));
  return buffer.data();
}

std::int64_t tile_offset(const ModelConfig& config, std::int32_t block, std::int64_t kv_head) {
  return (block * config.kv_heads + kv_head) * config.head_dim * kTile;
}

// Decode, or a few tokens: processes one query row after the other; the query heads of a group share the tiles of kv head g.
// `scores`: room for a row of whole tiles per head.
void direct_attention(const ModelConfig& config, std::int64_t window, const AttentionRows& rows, std::int64_t q_stride,
                      std::int64_t g, float* scores) {
  const std::int64_t dim = config.head_dim;
  const std::int64_t group = config.heads / config.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const std::int64_t padded = blocks_for(rows.start + rows.tokens) * kTile;
  const TileKernels& tile = kernels();
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    const std::int64_t visible = rows.start + t + 1;
    const std::int64_t seen = first_seen(window, rows.start + t);
    const std::int64_t blocks = blocks_for(visible);
    const std::int64_t first_block = seen / kTile;
    const float* query = rows.q + t * q_stride + g * group * dim;
    float* mixed = rows.out + t * config.q_size() + g * group * dim;
    for (std::int64_t b = first_block; b < blocks; ++b) {
      const float* keys = rows.kv.keys + tile_offset(config, rows.kv.blocks[static_cast<std::size_t>(b)], g);
      for (std::int64_t h = 0; h < group; ++h) tile.score(query + h * dim, keys, dim, scores + h * padded + b * kTile);
    }
    const std::int64_t from = first_block * kTile;
    for (std::int64_t h = 0; h < group; ++h) {
      masked_softmax(scores + h * padded + from, scale, seen - from, visible - from, visible - from);
    }
    std::fill(mixed, mixed + group * dim, 0.0F);
    for (std::int64_t b = first_block; b < blocks; ++b) {
      const float* values = rows.kv.values + tile_offset(config, rows.kv.blocks[static_cast<std::size_t>(b)], g);
      const std::int64_t count = std::min(kTile, visible - b * kTile);
      for (std::int64_t h = 0; h < group; ++h) tile.mix(scores + h * padded + b * kTile, count, values, dim, mixed + h * dim);
    }
  }
}

// Prefill: gathers one kv head at a time and uses BLAS for both products of all query heads in its group. Positions count from
// the first tile visible to any of the tokens.
void gathered_attention(const ModelConfig& config, std::int64_t window, const AttentionRows& sequence, std::int64_t q_stride,
                        ThreadTeam& team, AttentionScratch& scratch) {
  const auto& [q, tokens, start, kv, out] = sequence;
  const std::int64_t dim = config.head_dim;
  const std::int64_t group = config.heads / config.kv_heads;
  const std::int64_t base = first_seen(window, start) / kTile * kTile;
  const std::int64_t length = start + tokens - base;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const std::int64_t rows_at_once = std::clamp<std::int64_t>(kScoreElements / (length * group), 1, tokens);
  float* keys = grown(scratch.keys, length * dim);      // (dim, length)
  float* values = grown(scratch.values, length * dim);  // (length, dim)
  float* queries = grown(scratch.queries, rows_at_once * group * dim);
  float* mixed = grown(scratch.mixed, rows_at_once * group * dim);
  float* scores = grown(scratch.scores.front(), rows_at_once * group * length);
  for (std::int64_t g = 0; g < config.kv_heads; ++g) {
    for (std::int64_t p = 0; p < length; p += kTile) {
      const std::int64_t from = tile_offset(config, kv.blocks[static_cast<std::size_t>((base + p) / kTile)], g);
      const std::int64_t count = std::min(kTile, length - p);
      for (std::int64_t d = 0; d < dim; ++d) std::copy_n(kv.keys + from + d * kTile, count, keys + d * length + p);
      std::copy_n(kv.values + from, count * dim, values + p * dim);
    }
    for (std::int64_t first = 0; first < tokens; first += rows_at_once) {
      const std::int64_t rows = std::min(rows_at_once, tokens - first);
      const std::int64_t seen = start + first + rows - base;  // keys visible to any of these rows
      // Row t * group + h of the products is query head g * group + h of token first + t.
      for (std::int64_t t = 0; t < rows; ++t) {
        std::copy_n(q + (first + t) * q_stride + g * group * dim, group * dim, queries + t * group * dim);
      }
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(rows * group), static_cast<int>(seen),
                  static_cast<int>(dim), 1.0F, queries, static_cast<int>(dim), keys, static_cast<int>(length), 0.0F, scores,
                  static_cast<int>(seen));
      team.run(rows, [&](std::int64_t t, int /*member*/) {
        const std::int64_t position = start + first + t;
        for (std::int64_t h = 0; h < group; ++h) {
          masked_softmax(scores + (t * group + h) * seen, scale, first_seen(window, position) - base, position + 1 - base,
                         seen);
        }
      });
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

void store_kv(const ModelConfig& config, const float* key, const float* value, std::int32_t block, std::int64_t offset,
              float* keys, float* values) {
  const std::int64_t dim = config.head_dim;
  for (std::int64_t g = 0; g < config.kv_heads; ++g) {
    const std::int64_t tile = tile_offset(config, block, g);
    for (std::int64_t d = 0; d < dim; ++d) keys[tile + d * kTile + offset] = key[g * dim + d];
    std::copy_n(value + g * dim, dim, values + tile + offset * dim);
  }
}

void load_kv(const ModelConfig& config, const float* keys, const float* values, std::int32_t block, std::int64_t offset,
             float* key, float* value) {
  const std::int64_t dim = config.head_dim;
  for (std::int64_t g = 0; g < config.kv_heads; ++g) {
    const std::int64_t tile = tile_offset(config, block, g);
    for (std::int64_t d = 0; d < dim; ++d) key[g * dim + d] = keys[tile + d * kTile + offset];
    std::copy_n(values + tile + offset * dim, dim, value + g * dim);
  }
}

void attention(const ModelConfig& config, std::int64_t window, std::span<const AttentionRows> sequences, std::int64_t q_stride,
               ThreadTeam& team, AttentionScratch& scratch) {
  scratch.scores.resize(static_cast<std::size_t>(team.size()));
  scratch.direct.clear();
  std::int64_t positions = 0;  // visible to direct rows
  std::int64_t longest = 0;
  for (const AttentionRows& rows : sequences) {
    if (rows.tokens >= kDirectRows) continue;
    scratch.direct.push_back(&rows);
    positions += rows.tokens * (rows.start + rows.tokens);
    longest = std::max(longest, blocks_for(rows.start + rows.tokens) * kTile);
  }
  for (std::vector<float>& scores : scratch.scores) grown(scores, config.heads / config.kv_heads * longest);
  const auto heads = static_cast<std::int64_t>(scratch.direct.size()) * config.kv_heads;
  const auto head = [&](std::int64_t part, int member) {
    direct_attention(config, window, *scratch.direct[static_cast<std::size_t>(part / config.kv_heads)], q_stride,
                     part % config.kv_heads, scratch.scores[static_cast<std::size_t>(member)].data());
  };
  if (positions * config.q_size() < kWorthSharing) {
    for (std::int64_t part = 0; part < heads; ++part) head(part, 0);
  } else {
    team.run(heads, head);
  }
  for (const AttentionRows& rows : sequences) {
    if (rows.tokens >= kDirectRows) gathered_attention(config, window, rows, q_stride, team, scratch);
  }
}

}  // namespace windlass::worker::cpu
