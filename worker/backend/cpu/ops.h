// The operations of a decoder layer on the CPU in FP32: the reference for every other backend.
//
// Pure functions over row-major arrays, with shapes given at each function. For products with a model's matrices see
// matrix_product.h. attention() uses a team's threads and, for long prompts, OpenBLAS; everything else runs on the caller's
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/backend/cpu/thread_team.h"
#include "worker/model/config.h"

namespace windlass::worker::cpu {

// y (T, out) = x (T, in) * w (out, in)^T. Each sum has a fixed order, independent of T and the number of threads, for products
// that decide something. Slower than MatrixProduct.
void matmul_by_dots(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out);

// y (T, out): sets each row to the bias (out), or adds the bias to it.
void set_bias(const float* bias, float* y, std::int64_t tokens, std::int64_t out);
void add_bias(const float* bias, float* y, std::int64_t tokens, std::int64_t out);

// y (T, H): y = x / rms(x) * weight, row by row. y may be x.
void rms_norm(const float* x, const float* weight, float* y, std::int64_t tokens, std::int64_t hidden, float eps);

// y (T, H): y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, row by row. y may be x.
void layer_norm(const float* x, const float* weight, const float* bias, float* y, std::int64_t tokens, std::int64_t hidden,
                float eps);

// y (T, I) = max(y, 0).
void relu(float* y, std::int64_t tokens, std::int64_t intermediate);

// out (T, I) = silu(gate) * up, of gate_up (T, 2 I): gate, then up, in each row.
void swiglu(const float* gate_up, float* out, std::int64_t tokens, std::int64_t intermediate);

// Cosines and sines of each position's rotation angles, after the config's scaling: (positions, head_dim / 2).
struct RopeTable {
  std::vector<float> cos;
  std::vector<float> sin;
  std::int64_t half = 0;
};
[[nodiscard]] RopeTable make_rope_table(const ModelConfig& config, std::int64_t positions);
// head_dim / 2 angles per position step. Sources: Su et al. 2021; for kLlama3, apply_scaling in Meta's llama-models.
[[nodiscard]] std::vector<double> rope_frequencies(const ModelConfig& config);

// Rotates one row of `heads` heads in place: dimension i pairs with i + head_dim / 2, as Hugging Face checkpoints expect.
void rope(float* row, std::int64_t heads, const RopeTable& table, std::int64_t position);

// One sequence's view of a layer's cache. Per block and head, keys form a tile (head_dim, kKvBlockTokens) and values a tile
// (kKvBlockTokens, head_dim); keys and values are (blocks, kv_heads) of such tiles. Keys are transposed so that the scores of a
// block need only multiply-adds, without a sum over lanes.
struct PagedKv {
  const float* keys = nullptr;
  const float* values = nullptr;
  std::span<const std::int32_t> blocks;
};

// Stores one position's key and value rows (kv_heads * head_dim each) in its block.
void store_kv(const ModelConfig& config, const float* key, const float* value, std::int32_t block, std::int64_t offset,
              float* keys, float* values);
// The reverse.
void load_kv(const ModelConfig& config, const float* keys, const float* values, std::int32_t block, std::int64_t offset,
             float* key, float* value);

// A sequence's new tokens, T of them at positions start to start + T - 1; their keys and values are already in the cache.
struct AttentionRows {
  const float* q = nullptr;  // (T, heads * head_dim) with a row stride
  std::int64_t tokens = 0;
  std::int64_t start = 0;
  PagedKv kv;
  float* out = nullptr;  // (T, heads * head_dim), dense
};

// Work space of attention(), kept by the caller so that a step allocates nothing once it has grown.
struct AttentionScratch {
  std::vector<std::vector<float>> scores;  // one per member of the team
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> queries;
  std::vector<float> mixed;
  std::vector<const AttentionRows*> direct;
};

// Causal grouped-query attention of each sequence's new tokens. A token sees the last `window` positions, including its own; 0:
// all. A token's result does not depend on the other sequences or the team.
void attention(const ModelConfig& config, std::int64_t window, std::span<const AttentionRows> sequences, std::int64_t q_stride,
               ThreadTeam& team, AttentionScratch& scratch);

}  // namespace windlass::worker::cpu
