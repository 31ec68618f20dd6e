// Paged causal attention for prefill with plain FP32 multiply-adds: online softmax over tiles of keys (Dao 2023,
// FlashAttention-2). Used for FP32, and for heads that the tensor core kernel (prefill_tensor_cores.cuh) does not support.
//
// A thread block handles up to kPrefillTileRows tokens of one sequence and one query head, and walks the cache block by block,
// with queries, keys and values as floats in shared memory. 16 neighbouring threads share four rows: each computes the scores
// of one key and then sums 4 of every 64 dimensions, so that everything except the tiles is exchanged by shuffles.
#pragma once

#include "worker/backend/cuda/kernels/execution.cuh"

namespace windlass::worker::cuda {
namespace {

constexpr int kPrefillThreads = 256;
constexpr int kPrefillKeys = kCacheBlockTokens;                                 // keys per tile, and threads that share a row
constexpr int kPrefillOwn = kPrefillTileRows * kPrefillKeys / kPrefillThreads;  // rows per thread
constexpr int kPrefillRowStep = kPrefillThreads / kPrefillKeys;                 // distance between a thread's rows

template <int kDims>
struct PrefillShared {
  // Rows are padded by 4 floats, so that eight threads reading 16 bytes of eight rows hit different banks.
  float queries[kPrefillTileRows][kDims + 4];
  float keys[kPrefillKeys][kDims + 4];
  float values[kPrefillKeys][kDims];
};

__device__ __forceinline__ void multiply_add(float& to, const float4& a, const float4& b) {
  to += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ __forceinline__ const float4& four_at(const float* from) { return *reinterpret_cast<const float4*>(from); }

// Copies `rows` rows of padded_dim elements into shared memory as floats.
template <typename T, int kDims, int kStride>
__device__ __forceinline__ void load_rows(const T* from, long long stride, int rows, int padded_dim, float (*to)[kStride]) {
  const int per_row = padded_dim / kVector<T>;
  for (int i = static_cast<int>(threadIdx.x); i < rows * per_row; i += kPrefillThreads) {
    const int row = i / per_row;
    const int dim = i % per_row * kVector<T>;
    float values[kVector<T>];
    unpack(load_16(from + row * stride + dim), values);
#pragma unroll
    for (int e = 0; e < kVector<T>; ++e) to[row][dim + e] = values[e];
  }
}

// kDims: the smallest of 64, 128 and 256 that is at least padded_dim. grid (tiles, heads)
template <typename T, int kDims>
__global__ void __launch_bounds__(kPrefillThreads) prefill_attention_kernel(PrefillAttention work) {
  constexpr int kFours = kDims / (4 * kPrefillKeys);  // groups of four dimensions of a row, per thread
  const Attention& a = work.attention;
  auto& shared = shared_memory<PrefillShared<kDims>>();
  const PrefillTile tile = work.tiles[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (a.heads / a.kv_heads);
  const int column = static_cast<int>(threadIdx.x) % kPrefillKeys;
  const int first_row = static_cast<int>(threadIdx.x) / kPrefillKeys;

  load_rows<T, kDims>(static_cast<const T*>(a.q) + (static_cast<long long>(tile.row) * a.heads + head) * a.padded_dim,
                      static_cast<long long>(a.heads) * a.padded_dim, tile.rows, a.padded_dim, shared.queries);

  float highest[kPrefillOwn];
  float total[kPrefillOwn] = {};  // only of this thread's keys, until the end
  float4 mixed[kPrefillOwn][kFours] = {};
#pragma unroll
  for (int j = 0; j < kPrefillOwn; ++j) highest[j] = kLowestScore;

  const int end = tile.position + tile.rows;  // end of the positions visible to the tile
  const int seen_from = a.window > 0 ? max(0, tile.position + 1 - a.window) : 0;
  const int last_block = (end - 1) / kCacheBlockTokens;
  for (int b = seen_from / kCacheBlockTokens; b <= last_block; ++b) {
    const auto at =
        (static_cast<long long>(a.tables[tile.table + b]) * a.kv_heads + kv_head) * kCacheBlockTokens * a.padded_dim;
    const int there = min(kCacheBlockTokens, end - b * kCacheBlockTokens);  // positions after these may hold anything
    __syncthreads();                                                        // everyone has used the previous tile
    load_rows<T, kDims>(static_cast<const T*>(a.keys) + at, a.padded_dim, there, a.padded_dim, shared.keys);
    load_rows<T, kDims>(static_cast<const T*>(a.values) + at, a.padded_dim, there, a.padded_dim, shared.values);
    __syncthreads();

    float weights[kPrefillOwn] = {};
    if (column < there) {
      for (int dim = 0; dim < a.padded_dim; dim += 4) {
        const float4 key = four_at(&shared.keys[column][dim]);
#pragma unroll
        for (int j = 0; j < kPrefillOwn; ++j) {
          const int row = first_row + j * kPrefillRowStep;
          if (row < tile.rows) multiply_add(weights[j], key, four_at(&shared.queries[row][dim]));
        }
      }
    }
    const int key_position = b * kCacheBlockTokens + column;
#pragma unroll
    for (int j = 0; j < kPrefillOwn; ++j) {
      const int row = first_row + j * kPrefillRowStep;
      const int position = tile.position + row;
      const bool seen = row < tile.rows && key_position <= position && (a.window == 0 || key_position > position - a.window);
      const float score = seen ? weights[j] * a.scale * kLog2E : kLowestScore;
      const float peak = fmaxf(highest[j], max_over<kPrefillKeys>(score));
      const float shrink = exp2f(highest[j] - peak);
      highest[j] = peak;
      weights[j] = seen ? exp2f(score - peak) : 0.0F;
      total[j] = total[j] * shrink + weights[j];
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        mixed[j][f].x *= shrink;
        mixed[j][f].y *= shrink;
        mixed[j][f].z *= shrink;
        mixed[j][f].w *= shrink;
      }
    }
    const int half_warp = static_cast<int>(threadIdx.x) % kWarp / kPrefillKeys * kPrefillKeys;
    for (int key = 0; key < there; ++key) {
      float weight[kPrefillOwn];
#pragma unroll
      for (int j = 0; j < kPrefillOwn; ++j) weight[j] = __shfl_sync(kAllLanes, weights[j], half_warp + key);
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        const int dim = 4 * (f * kPrefillKeys + column);
        if (dim >= a.padded_dim) continue;
        const float4 value = four_at(&shared.values[key][dim]);
#pragma unroll
        for (int j = 0; j < kPrefillOwn; ++j) {
          mixed[j][f].x += weight[j] * value.x;
          mixed[j][f].y += weight[j] * value.y;
          mixed[j][f].z += weight[j] * value.z;
          mixed[j][f].w += weight[j] * value.w;
        }
      }
    }
  }

#pragma unroll
  for (int j = 0; j < kPrefillOwn; ++j) {
    const float share = 1.0F / sum_over<kPrefillKeys>(total[j]);
    const int row = first_row + j * kPrefillRowStep;
    if (row >= tile.rows) continue;
    T* out = static_cast<T*>(a.out) + (static_cast<long long>(tile.row + row) * a.heads + head) * a.head_dim;
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
      const float sums[4] = {mixed[j][f].x, mixed[j][f].y, mixed[j][f].z, mixed[j][f].w};
      const int dim = 4 * (f * kPrefillKeys + column);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (dim + e < a.head_dim) out[dim + e] = from_float<T>(sums[e] * share);
      }
    }
  }
}

}  // namespace
}  // namespace windlass::worker::cuda
