// Summaries of rows of logits: the likeliest tokens, and the total weight of all. Rows are cut into segments, which are
// summarised in parallel, one per thread block, and then merged, one row per warp.
#pragma once

#include "worker/backend/cuda/kernels/execution.cuh"

namespace windlass::worker::cuda {
namespace {

constexpr int kSummaryThreads = 256;
constexpr int kSummaryWarps = kSummaryThreads / kWarp;
constexpr int kSummaryValues = kSummarySegment / kSummaryThreads;  // values per thread
constexpr int kSegmentsOfLane = kMaxSummarySegments / kWarp;

struct Likely {
  float logit;
  int id;
};

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xFF800000U); }
// Comes after every token in the order.
__device__ __forceinline__ Likely nobody() { return Likely{minus_infinity(), 0x7FFFFFFF}; }
__device__ __forceinline__ bool is_nobody(const Likely& one) { return one.logit == minus_infinity(); }

// By logit; ties by lower id.
__device__ __forceinline__ Likely likelier_of(const Likely& a, const Likely& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id) ? a : b;
}

// The likeliest of all lanes; every lane gets it.
__device__ __forceinline__ Likely likeliest_over_warp(Likely mine) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float logit = __shfl_xor_sync(kAllLanes, mine.logit, step);
    const int id = __shfl_xor_sync(kAllLanes, mine.id, step);
    mine = likelier_of(mine, Likely{logit, id});
  }
  return mine;
}

// The likeliest of a thread's values, whose ids are first, first + kSummaryThreads, ...
__device__ __forceinline__ Likely likeliest_of(const float (&values)[kSummaryValues], int first) {
  Likely best = nobody();
#pragma unroll
  for (int j = 0; j < kSummaryValues; ++j) {
    if (values[j] > best.logit) best = Likely{values[j], first + j * kSummaryThreads};
  }
  return best;
}

struct SegmentShared {
  float highest[kSummaryWarps];
  float total[kSummaryWarps];
  float tempered[kSummaryWarps];
  Likely best[2][kSummaryWarps];  // for this round and the next, so that one barrier per round is enough
};

// grid (rows, segments): each round finds the likeliest token that is left.
__global__ void __launch_bounds__(kSummaryThreads) summarise_segments_kernel(SummariseLogits work) {
  const RowNeed need = work.needs[blockIdx.x];
  if (need.likeliest == 0) return;  // the whole block
  auto& shared = shared_memory<SegmentShared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int first = static_cast<int>(blockIdx.y) * kSummarySegment + thread;
  const float* row = work.logits + static_cast<long long>(blockIdx.x) * work.width;
  float values[kSummaryValues];
#pragma unroll
  for (int j = 0; j < kSummaryValues; ++j) {
    const int i = first + j * kSummaryThreads;
    const float value = i < work.width ? row[i] : minus_infinity();
    const bool finite = (__float_as_uint(value) & 0x7F800000U) != 0x7F800000U;
    values[j] = finite ? value : minus_infinity();
  }
  Likely mine = likeliest_of(values, work.first_id + first);

  const float highest_of_warp = max_over<kWarp>(mine.logit);
  if (lane == 0) shared.highest[warp] = highest_of_warp;
  __syncthreads();
  float highest = shared.highest[0];
  for (int w = 1; w < kSummaryWarps; ++w) highest = fmaxf(highest, shared.highest[w]);
  float total = 0;
  float tempered = 0;
#pragma unroll
  for (int j = 0; j < kSummaryValues; ++j) {
    if (values[j] == minus_infinity()) continue;
    total += expf(values[j] - highest);
    tempered += expf((values[j] - highest) * need.steepness);
  }
  total = sum_over<kWarp>(total);
  tempered = sum_over<kWarp>(tempered);
  if (lane == 0) {
    shared.total[warp] = total;
    shared.tempered[warp] = tempered;
  }

  LogitSummary* out = work.segments + static_cast<long long>(blockIdx.x) * gridDim.y + blockIdx.y;
  int count = 0;
  for (; count < need.likeliest; ++count) {
    Likely(&bests)[kSummaryWarps] = shared.best[count % 2];
    const Likely best_of_warp = likeliest_over_warp(mine);
    if (lane == 0) bests[warp] = best_of_warp;
    __syncthreads();
    Likely best = bests[0];
    for (int w = 1; w < kSummaryWarps; ++w) best = likelier_of(best, bests[w]);
    if (is_nobody(best)) break;  // the same for all threads
    if (thread == 0) {
      out->ids[count] = best.id;
      out->logits[count] = best.logit;
    }
    if (best.id != mine.id) continue;
#pragma unroll
    for (int j = 0; j < kSummaryValues; ++j) {
      if (work.first_id + first + j * kSummaryThreads == best.id) values[j] = minus_infinity();
    }
    mine = likeliest_of(values, work.first_id + first);
  }
  if (thread != 0) return;
  total = tempered = 0;
  for (int w = 0; w < kSummaryWarps; ++w) {
    total += shared.total[w];
    tempered += shared.tempered[w];
  }
  out->count = count;
  out->highest = highest;
  out->total = total;
  out->tempered = tempered;
}

// One row per block of one warp: a lane has the segments lane, lane + 32, ...
__global__ void __launch_bounds__(kWarp) merge_summaries_kernel(SummariseLogits work) {
  const RowNeed need = work.needs[blockIdx.x];
  if (need.likeliest == 0) return;
  const int lane = static_cast<int>(threadIdx.x);
  const int segments = (work.width + kSummarySegment - 1) / kSummarySegment;
  const LogitSummary* parts = work.segments + static_cast<long long>(blockIdx.x) * segments;
  LogitSummary* out = work.out + blockIdx.x;
  float highest = minus_infinity();
  for (int s = lane; s < segments; s += kWarp) highest = fmaxf(highest, parts[s].highest);
  highest = max_over<kWarp>(highest);
  float total = 0;
  float tempered = 0;
  for (int s = lane; s < segments; s += kWarp) {
    if (parts[s].count == 0) continue;
    total += parts[s].total * expf(parts[s].highest - highest);
    tempered += parts[s].tempered * expf((parts[s].highest - highest) * need.steepness);
  }
  total = sum_over<kWarp>(total);
  tempered = sum_over<kWarp>(tempered);

  int next[kSegmentsOfLane] = {};
  int count = 0;
  for (; count < need.likeliest; ++count) {
    Likely mine = nobody();
#pragma unroll
    for (int j = 0; j < kSegmentsOfLane; ++j) {
      const int s = lane + j * kWarp;
      if (s < segments && next[j] < parts[s].count)
        mine = likelier_of(mine, Likely{parts[s].logits[next[j]], parts[s].ids[next[j]]});
    }
    const Likely best = likeliest_over_warp(mine);
    if (is_nobody(best)) break;
    if (lane == 0) {
      out->ids[count] = best.id;
      out->logits[count] = best.logit;
    }
    const int from = (best.id - work.first_id) / kSummarySegment;
#pragma unroll
    for (int j = 0; j < kSegmentsOfLane; ++j) next[j] += lane + j * kWarp == from ? 1 : 0;
  }
  if (lane != 0) return;
  out->count = count;
  out->highest = highest;
  out->total = total;
  out->tempered = tempered;
}

}  // namespace
}  // namespace windlass::worker::cuda
