// Paged causal attention for prefill on the tensor cores, in BF16: online softmax over tiles of keys (Dao 2023,
// FlashAttention-2).
//
// A thread block handles up to kPrefillTileRows tokens of one sequence and one query head, 16 per warp, and walks the cache 64
// positions at a time, through shared memory. A warp's queries, scores and sums stay in registers: a product returns the scores
// in the layout of the next product's left operand, so that weights only have to be rounded.
#pragma once

#include "worker/backend/cuda/kernels/execution.cuh"

namespace windlass::worker::cuda {
namespace {

constexpr int kTensorThreads = 128;
constexpr int kTensorKeys = 64;                 // keys per tile
constexpr int kTensorScores = kTensorKeys / 8;  // (16, 8) products for a tile's scores
static_assert(kPrefillTileRows == kTensorThreads / kWarp * 16);
static_assert(kTensorKeys % kCacheBlockTokens == 0);

template <int kDims>
struct TensorShared {
  // Rows are padded by 16 bytes, so that the eight rows of a matrix are in different banks.
  Bf16 keys[kTensorKeys][kDims + 8];
  Bf16 values[kTensorKeys][kDims + 8];
};

// Two brain floats in a register, the first in the low half.
__device__ __forceinline__ unsigned pack_two(float low, float high) {
  return static_cast<unsigned>(bf16_bits(low)) | static_cast<unsigned>(bf16_bits(high)) << 16U;
}

// kDims: 64 or 128, the smallest that is at least padded_dim. grid (tiles, heads)
template <int kDims>
__global__ void __launch_bounds__(kTensorThreads) prefill_tensor_cores_kernel(PrefillAttention work) {
  constexpr int kSteps = kDims / 16;  // steps of a product over dimensions
  constexpr int kSums = kDims / 8;    // (16, 8) products for the mixed values
  constexpr int kVec = kVector<Bf16>;
  const Attention& a = work.attention;
  auto& shared = shared_memory<TensorShared<kDims>>();
  const PrefillTile tile = work.tiles[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (a.heads / a.kv_heads);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = static_cast<int>(threadIdx.x) / kWarp * 16;  // of the warp
  const int pair = lane % 4 * 2;                                     // first of the lane's two columns in a product
  const int rows[2] = {first_row + lane / 4, first_row + lane / 4 + 8};

  unsigned queries[kSteps][4] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (rows[r] >= tile.rows) continue;
    const Bf16* from =
        static_cast<const Bf16*>(a.q) + (static_cast<long long>(tile.row + rows[r]) * a.heads + head) * a.padded_dim;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int dim = step * 16 + half * 8 + pair;
        if (dim < a.padded_dim) queries[step][half * 2 + r] = load_4(from + dim);
      }
    }
  }

  float highest[2] = {kLowestScore, kLowestScore};
  float total[2] = {};  // only of this lane's keys, until the end
  float mixed[kSums][4] = {};
  const int end = tile.position + tile.rows;  // end of the positions visible to the tile
  const int seen_from = a.window > 0 ? max(0, tile.position + 1 - a.window) : 0;
  for (int begin = seen_from / kCacheBlockTokens * kCacheBlockTokens; begin < end; begin += kTensorKeys) {
    __syncthreads();  // everyone has used the previous tile
    for (int i = static_cast<int>(threadIdx.x); i < kTensorKeys * (kDims / kVec); i += kTensorThreads) {
      const int row = i / (kDims / kVec);
      const int dim = i % (kDims / kVec) * kVec;
      const int position = begin + row;
      uint4 key = {};
      uint4 value = {};
      // Memory past the end may hold anything, and 0 times NaN is not 0.
      if (position < end && dim < a.padded_dim) {
        const auto block = static_cast<long long>(a.tables[tile.table + position / kCacheBlockTokens]);
        const auto at =
            ((block * a.kv_heads + kv_head) * kCacheBlockTokens + position % kCacheBlockTokens) * a.padded_dim + dim;
        key = load_16(static_cast<const Bf16*>(a.keys) + at);
        value = load_16(static_cast<const Bf16*>(a.values) + at);
      }
      store_16(&shared.keys[row][dim], key);
      store_16(&shared.values[row][dim], value);
    }
    __syncthreads();
    // None of the warp's tokens sees this tile: it comes after all of them, or the warp has none.
    if (first_row >= tile.rows || begin > tile.position + first_row + 15) continue;

    float scores[kTensorScores][4] = {};
#pragma unroll
    for (int n = 0; n < kTensorScores; ++n) {
#pragma unroll
      for (int step = 0; step < kSteps; step += 2) {
        unsigned keys[4];  // of 32 dimensions
        load_matrices<false>(keys, &shared.keys[n * 8 + lane % 8][step * 16 + lane / 8 * 8]);
        multiply_accumulate(scores[n], queries[step], keys[0], keys[1]);
        multiply_accumulate(scores[n], queries[step + 1], keys[2], keys[3]);
      }
    }

    unsigned weights[kTensorScores][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int position = tile.position + rows[r];
      float peak = highest[r];
#pragma unroll
      for (int n = 0; n < kTensorScores; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = begin + n * 8 + pair + e;
          const bool seen = key <= position && (a.window == 0 || key > position - a.window);
          float& score = scores[n][2 * r + e];
          score = seen ? score * a.scale * kLog2E : 2 * kLowestScore;
          peak = fmaxf(peak, score);
        }
      }
      peak = max_over<4>(peak);
      const float shrink = exp2f(highest[r] - peak);
      highest[r] = peak;
      total[r] *= shrink;
#pragma unroll
      for (int n = 0; n < kSums; ++n) {
        mixed[n][2 * r] *= shrink;
        mixed[n][2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < kTensorScores; ++n) {
        const float low = exp2f(scores[n][2 * r] - peak);  // 0 for invisible positions: the peak is at least kLowestScore
        const float high = exp2f(scores[n][2 * r + 1] - peak);
        total[r] += low + high;
        weights[n][r] = pack_two(low, high);
      }
    }
#pragma unroll
    for (int step = 0; step < kTensorKeys / 16; ++step) {
      const unsigned left[4] = {weights[2 * step][0], weights[2 * step][1], weights[2 * step + 1][0], weights[2 * step + 1][1]};
#pragma unroll
      for (int n = 0; n < kSums; n += 2) {
        unsigned values[4];  // of 16 positions and 16 dimensions
        load_matrices<true>(values, &shared.values[step * 16 + lane % 16][n * 8 + lane / 16 * 8]);
        multiply_accumulate(mixed[n], left, values[0], values[1]);
        multiply_accumulate(mixed[n + 1], left, values[2], values[3]);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float share = 1.0F / sum_over<4>(total[r]);
    if (rows[r] >= tile.rows) continue;
    Bf16* out = static_cast<Bf16*>(a.out) + (static_cast<long long>(tile.row + rows[r]) * a.heads + head) * a.head_dim;
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
      const int dim = n * 8 + pair;  // head_dim is even: either both exist or neither
      if (dim < a.head_dim) store_4(out + dim, pack_two(mixed[n][2 * r] * share, mixed[n][2 * r + 1] * share));
    }
  }
}

}  // namespace
}  // namespace windlass::worker::cuda
