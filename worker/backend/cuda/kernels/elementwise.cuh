// Kernels that process one element or one row at a time: embedding lookup, norms, rotation with the write to the cache,
// activations, and copies between the cache and plain rows. All are limited by memory bandwidth.
#pragma once

#include "worker/backend/cuda/kernels/execution.cuh"

namespace windlass::worker::cuda {
namespace {

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / kWarp;

// One row per thread block.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) embed_tokens_kernel(EmbedTokens work) {
  const int token = work.tokens[blockIdx.x];
  float* to = work.residual + static_cast<long long>(blockIdx.x) * work.hidden;
  const bool here = token >= work.first && token < work.end;
  const T* from = static_cast<const T*>(work.embedding) + (here ? static_cast<long long>(token - work.first) * work.hidden : 0);
  const float* learned = work.learned;
  if (learned != nullptr) learned += static_cast<long long>(work.positions[blockIdx.x]) * work.hidden;
  for (int i = static_cast<int>(threadIdx.x); i < work.hidden; i += kRowThreads) {
    to[i] = (here ? to_float(from[i]) : 0.0F) + (learned != nullptr ? learned[i] : 0.0F);
  }
}

struct NormShared {
  float values[kRowWarps], squares[kRowWarps];  // sums of warps
};

// The sum over a block's threads: warps sum with shuffles, then every warp adds up all warps' sums.
__device__ __forceinline__ float sum_over_block(float value, float (&of_warps)[kRowWarps]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  value = sum_over<kWarp>(value);
  if (lane == 0) of_warps[thread / kWarp] = value;
  __syncthreads();
  return sum_over<kWarp>(lane < kRowWarps ? of_warps[lane] : 0.0F);
}

// One row per thread block.
template <typename T, bool layer_norm>
__global__ void __launch_bounds__(kRowThreads) norm_rows_kernel(NormRows work) {
  auto& shared = shared_memory<NormShared>();
  const int thread = static_cast<int>(threadIdx.x);
  const auto row = static_cast<long long>(work.rows == nullptr ? static_cast<int>(blockIdx.x) : work.rows[blockIdx.x]);
  float* x = work.residual + row * work.hidden;
  T* out = static_cast<T*>(work.out) + static_cast<long long>(blockIdx.x) * work.hidden;
  const auto width = static_cast<float>(work.hidden);
  float values = 0;
  float squares = 0;
  for (int i = thread; i < work.hidden; i += kRowThreads) {
    float value = x[i];
    if (work.bias != nullptr) {
      value += work.bias[i];
      x[i] = value;  // read again below, by the same thread
    }
    values += value;
    squares += value * value;
  }
  float mean = 0;
  if (layer_norm) {
    mean = sum_over_block(values, shared.values) / width;
    squares = 0;  // sum of squared differences; the mean of squares minus the squared mean could be rounding error alone
    for (int i = thread; i < work.hidden; i += kRowThreads) squares += (x[i] - mean) * (x[i] - mean);
  }
  const float scale = rsqrtf(sum_over_block(squares, shared.squares) / width + work.eps);
  for (int i = thread; i < work.hidden; i += kRowThreads) {
    const float normed = (x[i] - mean) * scale * work.weight[i] + (layer_norm ? work.shift[i] : 0.0F);
    out[i] = from_float<T>(normed);
    if (work.in_place) x[i] = normed;  // only this thread reads it
  }
}

// grid (rows, width / threads)
template <typename T>
__global__ void __launch_bounds__(kRowThreads) round_rows_kernel(RoundRows work) {
  const int i = static_cast<int>(blockIdx.y) * kRowThreads + static_cast<int>(threadIdx.x);
  if (i >= work.width) return;
  const auto row = static_cast<long long>(work.rows == nullptr ? static_cast<int>(blockIdx.x) : work.rows[blockIdx.x]);
  static_cast<T*>(work.out)[static_cast<long long>(blockIdx.x) * work.width + i] = from_float<T>(work.x[row * work.width + i]);
}

// grid (rows, hidden / threads)
__global__ void __launch_bounds__(kRowThreads) add_bias_kernel(AddBias work) {
  const int i = static_cast<int>(blockIdx.y) * kRowThreads + static_cast<int>(threadIdx.x);
  if (i < work.hidden) work.residual[static_cast<long long>(blockIdx.x) * work.hidden + i] += work.bias[i];
}

constexpr int kRopeThreads = 128;
constexpr int kRopeWarps = kRopeThreads / kWarp;
constexpr int kRopePairs = kMaxHeadDim / 2 / kWarp;  // pairs per lane

// grid (tokens, heads / kRopeWarps): one head of one token per warp; a lane has the pairs lane, lane + 32, ...
template <typename T>
__global__ void __launch_bounds__(kRopeThreads) rope_store_kernel(RopeStore work) {
  const auto token = static_cast<long long>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y) * kRopeWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int all_heads = work.heads + 2 * work.kv_heads;
  if (head >= all_heads) return;  // exits whole warps only, and no barrier follows
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int half = work.head_dim / 2;
  const T* from = static_cast<const T*>(work.qkv) + (token * all_heads + head) * work.head_dim;
  const float* bias = work.bias == nullptr ? nullptr : work.bias + head * work.head_dim;
  float first[kRopePairs] = {};
  float second[kRopePairs] = {};
#pragma unroll
  for (int j = 0; j < kRopePairs; ++j) {
    const int i = lane + j * kWarp;
    if (i >= half) continue;
    first[j] = to_float(from[i]) + (bias == nullptr ? 0.0F : bias[i]);
    second[j] = to_float(from[i + half]) + (bias == nullptr ? 0.0F : bias[i + half]);
  }
  const bool query = head < work.heads;
  const bool value = head >= work.heads + work.kv_heads;
  const float* norm = query ? work.q_norm : work.k_norm;
  if (!value && norm != nullptr) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kRopePairs; ++j) squares += first[j] * first[j] + second[j] * second[j];
    const float scale = rsqrtf(sum_over<kWarp>(squares) / static_cast<float>(work.head_dim) + work.eps);
#pragma unroll
    for (int j = 0; j < kRopePairs; ++j) {
      const int i = lane + j * kWarp;
      if (i >= half) continue;
      first[j] *= scale * norm[i];
      second[j] *= scale * norm[i + half];
    }
  }
  T* to;
  if (query) {
    to = static_cast<T*>(work.q) + (token * work.heads + head) * work.padded_dim;
  } else {
    const int slot = work.slots[token];
    if (slot < 0) return;
    const int kv_head = (head - work.heads) % work.kv_heads;
    const auto tile = static_cast<long long>(slot / kCacheBlockTokens) * work.kv_heads + kv_head;
    to = static_cast<T*>(value ? work.values : work.keys) +
         (tile * kCacheBlockTokens + slot % kCacheBlockTokens) * work.padded_dim;
  }
  const bool rotates = !value && work.cos != nullptr;
  const int position = rotates ? work.positions[token] : 0;
  const auto angles = static_cast<long long>(position < 0 ? 0 : position) * half;
#pragma unroll
  for (int j = 0; j < kRopePairs; ++j) {
    const int i = lane + j * kWarp;
    if (i >= half) continue;
    const float cos = rotates ? work.cos[angles + i] : 1.0F;
    const float sin = rotates ? work.sin[angles + i] : 0.0F;
    to[i] = from_float<T>(first[j] * cos - second[j] * sin);
    to[i + half] = from_float<T>(second[j] * cos + first[j] * sin);
  }
}

constexpr int kSwiGluThreads = 256;

__device__ __forceinline__ float bias_at(const Activate& work, int i) { return work.bias == nullptr ? 0.0F : work.bias[i]; }
__device__ __forceinline__ float silu_times(float gate, float up) { return gate / (1.0F + expf(-gate)) * up; }

// grid (rows, width / threads / kVector): 16 bytes per thread if rows are aligned, otherwise element by element.
template <typename T>
__global__ void __launch_bounds__(kSwiGluThreads) swiglu_kernel(Activate work) {
  const auto row = static_cast<long long>(blockIdx.x);
  const T* gate = static_cast<const T*>(work.in) + row * 2 * work.width;
  const T* up = gate + work.width;
  T* out = static_cast<T*>(work.out) + row * work.width;
  const int first = (static_cast<int>(blockIdx.y) * kSwiGluThreads + static_cast<int>(threadIdx.x)) * kVector<T>;
  if (first >= work.width) return;
  if (work.width % kVector<T> == 0) {
    float gates[kVector<T>];
    float ups[kVector<T>];
    unpack(load_16(gate + first), gates);
    unpack(load_16(up + first), ups);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i)
      gates[i] = silu_times(gates[i] + bias_at(work, first + i), ups[i] + bias_at(work, work.width + first + i));
    store_16(out + first, pack(gates));
    return;
  }
  const int end = first + kVector<T> < work.width ? first + kVector<T> : work.width;
  for (int i = first; i < end; ++i) {
    out[i] = from_float<T>(silu_times(to_float(gate[i]) + bias_at(work, i), to_float(up[i]) + bias_at(work, work.width + i)));
  }
}

// grid (rows, width / threads)
template <typename T>
__global__ void __launch_bounds__(kRowThreads) relu_kernel(Activate work) {
  const int i = static_cast<int>(blockIdx.y) * kRowThreads + static_cast<int>(threadIdx.x);
  if (i >= work.width) return;
  const auto at = static_cast<long long>(blockIdx.x) * work.width + i;
  const float value = to_float(static_cast<const T*>(work.in)[at]) + bias_at(work, i);
  static_cast<T*>(work.out)[at] = from_float<T>(value < 0.0F ? 0.0F : value);
}

constexpr int kCopyKvThreads = 256;

// One token per thread block.
template <typename T, bool out_of_cache>
__global__ void __launch_bounds__(kCopyKvThreads) copy_kv_kernel(CopyKv work) {
  const int slot = work.slots[blockIdx.x];
  const int size = work.kv_heads * work.head_dim;
  float* plain = work.plain + static_cast<long long>(blockIdx.x) * 2 * size;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * size; i += kCopyKvThreads) {
    const int head = i % size / work.head_dim;
    const auto tile = static_cast<long long>(slot / kCacheBlockTokens) * work.kv_heads + head;
    T* cached = static_cast<T*>(i < size ? work.keys : work.values) +
                (tile * kCacheBlockTokens + slot % kCacheBlockTokens) * work.padded_dim + i % work.head_dim;
    if (out_of_cache) {
      plain[i] = to_float(*cached);
    } else {
      *cached = from_float<T>(plain[i]);
    }
  }
}

}  // namespace
}  // namespace windlass::worker::cuda
