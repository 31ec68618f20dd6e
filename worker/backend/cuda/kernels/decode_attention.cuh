// Paged attention for single tokens. Each token reads its whole context once, so memory bandwidth is the limit. One token has
// too few heads to fill a GPU, so its context is split into parts that run in parallel (Dao et al. 2023, Flash-Decoding).
//
// A thread block handles one token, one split and up to kDecodeHeads query heads of one key/value head. Its warps take turns
// with the cache's blocks. In a warp, kLanes lanes share one key or value row, 16 bytes each, so that a load instruction reads
// neighbouring rows completely, and a lane issues several loads before it needs the first. Every group of lanes keeps its own
// online softmax (Milakov, Gimelshein 2018); they are combined only at the end.
#pragma once

#include "worker/backend/cuda/kernels/execution.cuh"

namespace windlass::worker::cuda {
namespace {

constexpr int kDecodeThreads = 128;
constexpr int kDecodeWarps = kDecodeThreads / kWarp;

template <int kDims>
struct DecodeShared {
  float highest[kDecodeWarps][kDecodeHeads];
  float total[kDecodeWarps][kDecodeHeads];
  float mixed[kDecodeWarps][kDecodeHeads][kDims];
};

// kDims: the smallest of 64, 128 and 256 that is at least padded_dim. grid (rows, kv_heads * groups of kDecodeHeads heads,
// splits)
template <typename T, int kDims>
__global__ void __launch_bounds__(kDecodeThreads) decode_attention_kernel(DecodeAttention work) {
  constexpr int kVec = kVector<T>;
  constexpr int kLanes = kDims / kVec < kWarp ? kDims / kVec : kWarp;  // lanes that share a row
  constexpr int kChunks = kDims / (kVec * kLanes);                     // 16-byte chunks of a row per lane
  constexpr int kGroups = kWarp / kLanes;                              // rows that a warp reads at once
  constexpr int kOwn = kCacheBlockTokens / kGroups;                    // rows of a cache block per group of lanes
  constexpr int kStep = kOwn < 8 / kChunks ? kOwn : 8 / kChunks;       // rows processed between two updates of the softmax

  const Attention& a = work.attention;
  auto& shared = shared_memory<DecodeShared<kDims>>();
  const DecodeRow row = work.rows[blockIdx.x];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = lane / kLanes;
  const int first_dim = lane % kLanes * kVec;

  const int group_heads = a.heads / a.kv_heads;
  const int head_groups = (group_heads + kDecodeHeads - 1) / kDecodeHeads;
  const int kv_head = static_cast<int>(blockIdx.y) / head_groups;
  const int first_of_group = static_cast<int>(blockIdx.y) % head_groups * kDecodeHeads;
  const int first_head = kv_head * group_heads + first_of_group;
  const int heads = min(kDecodeHeads, group_heads - first_of_group);

  // This split's part of the visible positions.
  const int visible = row.position + 1;
  const int seen_from = a.window > 0 ? max(0, visible - a.window) : 0;
  const int first_block = seen_from / kCacheBlockTokens;
  const int blocks = (visible + kCacheBlockTokens - 1) / kCacheBlockTokens - first_block;
  const int share = (blocks + work.splits - 1) / work.splits;
  const int from = first_block + static_cast<int>(blockIdx.z) * share;
  const int to = min(from + share, first_block + blocks);

  float query[kDecodeHeads][kChunks][kVec] = {};
#pragma unroll
  for (int h = 0; h < kDecodeHeads; ++h) {
    const T* at = static_cast<const T*>(a.q) + (static_cast<long long>(row.row) * a.heads + first_head + h) * a.padded_dim;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int dim = c * kLanes * kVec + first_dim;
      if (h >= heads || dim >= a.padded_dim) continue;
      unpack(load_16(at + dim), query[h][c]);
#pragma unroll
      for (int i = 0; i < kVec; ++i) query[h][c][i] *= a.scale * kLog2E;
    }
  }

  float highest[kDecodeHeads];
  float total[kDecodeHeads] = {};
  float mixed[kDecodeHeads][kChunks][kVec] = {};
#pragma unroll
  for (int h = 0; h < kDecodeHeads; ++h) highest[h] = kLowestScore;

  for (int b = from + warp; b < to; b += kDecodeWarps) {
    const auto tile = (static_cast<long long>(a.tables[row.table + b]) * a.kv_heads + kv_head) * kCacheBlockTokens;
#pragma unroll 1
    for (int begin = 0; begin < kOwn; begin += kStep) {
      uint4 keys[kStep][kChunks];
      uint4 values[kStep][kChunks];
      bool seen[kStep];
#pragma unroll
      for (int r = 0; r < kStep; ++r) {
        const int offset = (begin + r) * kGroups + group;
        const int position = b * kCacheBlockTokens + offset;
        seen[r] = position >= seen_from && position < visible;
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          const int dim = c * kLanes * kVec + first_dim;
          const auto at = (tile + offset) * a.padded_dim + dim;
          // Do not read invisible positions: they may hold NaN from another sequence, which a factor of 0 does not cancel.
          const bool there = seen[r] && dim < a.padded_dim;
          keys[r][c] = there ? load_16(static_cast<const T*>(a.keys) + at) : uint4{};
          values[r][c] = there ? load_16(static_cast<const T*>(a.values) + at) : uint4{};
        }
      }
#pragma unroll
      for (int h = 0; h < kDecodeHeads; ++h) {
        if (h >= heads) continue;  // the same for all threads
        float scores[kStep];
        float peak = highest[h];
#pragma unroll
        for (int r = 0; r < kStep; ++r) {
          float sum = 0;
#pragma unroll
          for (int c = 0; c < kChunks; ++c) {
            float key[kVec];
            unpack(keys[r][c], key);
#pragma unroll
            for (int i = 0; i < kVec; ++i) sum += query[h][c][i] * key[i];
          }
          scores[r] = sum_over<kLanes>(sum);
          if (seen[r]) peak = fmaxf(peak, scores[r]);
        }
        const float shrink = exp2f(highest[h] - peak);
        highest[h] = peak;
        total[h] *= shrink;
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
#pragma unroll
          for (int i = 0; i < kVec; ++i) mixed[h][c][i] *= shrink;
        }
#pragma unroll
        for (int r = 0; r < kStep; ++r) {
          const float weight = seen[r] ? exp2f(scores[r] - peak) : 0.0F;
          total[h] += weight;
#pragma unroll
          for (int c = 0; c < kChunks; ++c) {
            float value[kVec];
            unpack(values[r][c], value);
#pragma unroll
            for (int i = 0; i < kVec; ++i) mixed[h][c][i] += weight * value[i];
          }
        }
      }
    }
  }

  // Combine the groups of a warp, then the warps.
#pragma unroll
  for (int h = 0; h < kDecodeHeads; ++h) {
#pragma unroll
    for (int step = kLanes; step < kWarp; step *= 2) {
      const float other = __shfl_xor_sync(kAllLanes, highest[h], step);
      const float peak = fmaxf(highest[h], other);
      const float mine = exp2f(highest[h] - peak);
      const float theirs = exp2f(other - peak);
      highest[h] = peak;
      total[h] = total[h] * mine + __shfl_xor_sync(kAllLanes, total[h], step) * theirs;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int i = 0; i < kVec; ++i) {
          mixed[h][c][i] = mixed[h][c][i] * mine + __shfl_xor_sync(kAllLanes, mixed[h][c][i], step) * theirs;
        }
      }
    }
    if (group != 0) continue;
    if (lane == 0) {
      shared.highest[warp][h] = highest[h];
      shared.total[warp][h] = total[h];
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) shared.mixed[warp][h][c * kLanes * kVec + first_dim + i] = mixed[h][c][i];
    }
  }
  __syncthreads();

  for (int i = static_cast<int>(threadIdx.x); i < heads * a.head_dim; i += kDecodeThreads) {
    const int h = i / a.head_dim;
    const int dim = i % a.head_dim;
    float peak = shared.highest[0][h];
    for (int w = 1; w < kDecodeWarps; ++w) peak = fmaxf(peak, shared.highest[w][h]);
    float sum = 0;
    float weights = 0;
    for (int w = 0; w < kDecodeWarps; ++w) {
      const float shrink = exp2f(shared.highest[w][h] - peak);
      weights += shared.total[w][h] * shrink;
      sum += shared.mixed[w][h][dim] * shrink;
    }
    if (work.splits == 1) {
      T* out = static_cast<T*>(a.out) + (static_cast<long long>(row.row) * a.heads + first_head + h) * a.head_dim;
      out[dim] = from_float<T>(weights > 0 ? sum / weights : 0.0F);
      continue;
    }
    const auto part = (static_cast<long long>(blockIdx.x) * a.heads + first_head + h) * work.splits + blockIdx.z;
    work.partial[part * a.head_dim + dim] = sum;
    if (dim == 0) {
      work.partial_stats[2 * part] = peak;
      work.partial_stats[2 * part + 1] = weights;
    }
  }
}

// grid (rows, heads): combines the splits of one head.
template <typename T>
__global__ void __launch_bounds__(kDecodeThreads) combine_splits_kernel(DecodeAttention work) {
  const Attention& a = work.attention;
  const auto head = static_cast<long long>(blockIdx.x) * a.heads + blockIdx.y;
  const float* stats = work.partial_stats + head * work.splits * 2;
  float peak = kLowestScore;
  for (int s = 0; s < work.splits; ++s) peak = fmaxf(peak, stats[2 * s]);
  float weights = 0;
  for (int s = 0; s < work.splits; ++s) weights += stats[2 * s + 1] * exp2f(stats[2 * s] - peak);
  T* out = static_cast<T*>(a.out) + (static_cast<long long>(work.rows[blockIdx.x].row) * a.heads + blockIdx.y) * a.head_dim;
  for (int dim = static_cast<int>(threadIdx.x); dim < a.head_dim; dim += kDecodeThreads) {
    float sum = 0;
    for (int s = 0; s < work.splits; ++s) {
      sum += work.partial[(head * work.splits + s) * a.head_dim + dim] * exp2f(stats[2 * s] - peak);
    }
    out[dim] = from_float<T>(weights > 0 ? sum / weights : 0.0F);
  }
}

}  // namespace
}  // namespace windlass::worker::cuda
