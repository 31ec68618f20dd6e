// Layers with experts: routing of tokens to experts, the products of all experts in one launch, and the sum over a token's
// experts.
//
// The host does not know how many tokens an expert gets, and does not wait to find out: grids have the largest size that may be
// needed, and blocks without work exit immediately.
#pragma once

#include "worker/backend/cuda/kernels/eight_bits.cuh"
#include "worker/backend/cuda/kernels/elementwise.cuh"

namespace windlass::worker::cuda {
namespace {

constexpr int kRouterTokens = 8;  // tokens per thread block, in which each warp has one expert

// grid (tokens / kRouterTokens, experts / kRowWarps)
template <typename T>
__global__ void __launch_bounds__(kRowThreads) router_logits_kernel(RouteTokens work) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(blockIdx.x) * kRouterTokens;
  const int expert = static_cast<int>(blockIdx.y) * kRowWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (expert >= work.experts) return;  // exits whole warps only, and no barrier follows
  const float* router = work.router + static_cast<long long>(expert) * work.hidden;
  const T* x = static_cast<const T*>(work.x) + static_cast<long long>(first) * work.hidden;
  float sums[kRouterTokens] = {};
  for (int i = lane; i < work.hidden; i += kWarp) {
    const float weight = router[i];
#pragma unroll
    for (int t = 0; t < kRouterTokens; ++t) {
      if (first + t < work.tokens) sums[t] += to_float(x[static_cast<long long>(t) * work.hidden + i]) * weight;
    }
  }
#pragma unroll
  for (int t = 0; t < kRouterTokens; ++t) {
    const float logit = sum_over<kWarp>(sums[t]);
    if (lane == 0 && first + t < work.tokens) work.logits[static_cast<long long>(first + t) * work.experts + expert] = logit;
  }
}

// An expert among those of one token: the order in which they are chosen.
struct Candidate {
  float logit;
  int expert;

  // NaN comes last; otherwise this would not be an order.
  [[nodiscard]] __device__ __forceinline__ float rank() const { return logit == logit ? logit : -INFINITY; }
  [[nodiscard]] __device__ __forceinline__ bool before(const Candidate& other) const {
    return rank() > other.rank() || (rank() == other.rank() && expert < other.expert);
  }
};

// grid (tokens / kRowWarps): one warp per token; lane i keeps the expert chosen i-th.
__global__ void __launch_bounds__(kRowThreads) choose_experts_kernel(RouteTokens work) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int token = static_cast<int>(blockIdx.x) * kRowWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (token >= work.tokens) return;  // exits whole warps only, and no barrier follows
  const float* logits = work.logits + static_cast<long long>(token) * work.experts;
  const Candidate none{-INFINITY, kMaxExperts};
  Candidate own = none;
  Candidate last{INFINITY, -1};
  float highest = 0;
  for (int round = 0; round < work.each; ++round) {
    Candidate best = none;
    for (int expert = lane; expert < work.experts; expert += kWarp) {
      const Candidate candidate{logits[expert], expert};
      if (last.before(candidate) && candidate.before(best)) best = candidate;
    }
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const Candidate other{__shfl_xor_sync(kAllLanes, best.logit, step), __shfl_xor_sync(kAllLanes, best.expert, step)};
      if (other.before(best)) best = other;
    }
    if (lane == round) own = best;
    if (round == 0) highest = best.logit;
    last = best;
  }
  const bool chosen = lane < work.each;
  const float power = chosen ? expf(own.logit - highest) : 0.0F;
  float summed = power;
  if (!work.normalise) {
    summed = 0;
    for (int expert = lane; expert < work.experts; expert += kWarp) summed += expf(logits[expert] - highest);
  }
  const float total = sum_over<kWarp>(summed);
  int place = 0;  // by number
  for (int other = 0; other < work.each; ++other) {
    if (__shfl_sync(kAllLanes, own.expert, other) < own.expert) ++place;
  }
  if (!chosen) return;
  const auto at = static_cast<long long>(token) * work.each + place;
  work.chosen[at] = work.slots[token] < 0 ? -1 : own.expert;
  work.entries.weights[at] = power / total;
}

struct EntriesShared {
  int warps[kRowWarps];
};

// The sum of a value over the block's threads before this one (`sum`), and over all threads (`total`).
struct Before {
  int sum, total;
};
__device__ __forceinline__ Before sum_before(int value, EntriesShared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  int sum = value;  // up to this lane
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_sync(kAllLanes, sum, lane - step < 0 ? 0 : lane - step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // everyone has read the previous contents
  if (lane == kWarp - 1) shared.warps[warp] = sum;
  __syncthreads();
  Before before{sum - value, 0};
#pragma unroll
  for (int w = 0; w < kRowWarps; ++w) {
    if (w < warp) before.sum += shared.warps[w];
    before.total += shared.warps[w];
  }
  return before;
}

// One expert per thread block, which scans all choices: those of lower numbers determine where its entries begin. Each thread
// scans a consecutive part, so that entries are in the order of tokens.
__global__ void __launch_bounds__(kRowThreads) list_entries_kernel(RouteTokens work) {
  auto& shared = shared_memory<EntriesShared>();
  const auto expert = static_cast<int>(blockIdx.x);
  const int choices = work.tokens * work.each;
  const int stretch = (choices + kRowThreads - 1) / kRowThreads;
  const int begin = min(static_cast<int>(threadIdx.x) * stretch, choices);
  const int end = min(begin + stretch, choices);
  int lower = 0;
  int own = 0;
  for (int i = begin; i < end; ++i) {
    const int chosen = work.chosen[i];
    if (chosen >= 0 && chosen < expert) ++lower;
    if (chosen == expert) ++own;
    if (expert == 0 && chosen < 0) work.entries.places[i] = -1;
  }
  const int first = sum_before(lower, shared).total;
  const Before before = sum_before(own, shared);
  if (threadIdx.x == 0) work.entries.begins[expert] = first;
  if (threadIdx.x == 0 && expert + 1 == work.experts) work.entries.begins[work.experts] = first + before.total;
  int entry = first + before.sum;
  for (int i = begin; i < end; ++i) {
    if (work.chosen[i] != expert) continue;
    work.entries.rows[entry] = i / work.each;
    work.entries.places[i] = entry++;
  }
}

// One number of w, at any position.
template <typename T, Stored stored>
__device__ __forceinline__ float stored_at(const void* w, long long at) {
  if constexpr (stored == Stored::kPlain) {
    return to_float(static_cast<const T*>(w)[at]);
  } else {
    return number_of<stored == Stored::kFp8>(static_cast<const unsigned char*>(w)[at]);
  }
}

// The numbers of one expert's matrix.
template <typename T, Stored stored>
__device__ __forceinline__ const void* matrix_of(const MultiplyExperts& work, int expert) {
  constexpr long long kBytes = stored == Stored::kPlain ? static_cast<long long>(sizeof(T)) : 1;
  return static_cast<const unsigned char*>(work.w) + static_cast<long long>(expert) * work.out * work.in * kBytes;
}

template <typename T>
__device__ __forceinline__ void put(const MultiplyExperts& work, int entry, int channel, float value) {
  const auto at = static_cast<long long>(entry) * work.out + channel;
  if (work.float_out) {
    static_cast<float*>(work.y)[at] = value;
  } else {
    static_cast<T*>(work.y)[at] = from_float<T>(value);
  }
}

// Few tokens: all of an expert's entries form one tile. grid (out / kFewChannels, experts)
template <int kTiles, Stored stored>
__global__ void __launch_bounds__(kFewThreads) multiply_experts_few_kernel(MultiplyExperts work) {
  const auto expert = static_cast<int>(blockIdx.y);
  const int first = work.begins[expert];
  const int count = work.begins[expert + 1] - first;
  if (count == 0) return;
  const auto row = static_cast<long long>(first);
  const auto* x = static_cast<const Bf16*>(work.x) + (work.rows == nullptr ? row * work.in : 0);
  const float* scales = work.scales == nullptr ? nullptr : work.scales + static_cast<long long>(expert) * work.out;
  auto* y = static_cast<unsigned char*>(work.y) + row * work.out * (work.float_out ? 4 : 2);
  multiply_few_rows<kTiles, stored>(
      {x, work.rows == nullptr ? nullptr : work.rows + first, matrix_of<Bf16, stored>(work, expert), scales, y, count, work.in,
       work.out, work.float_out, false},
      static_cast<int>(blockIdx.x) * kFewChannels);
}

constexpr int kTileThreads = 128;
constexpr int kTileWarps = kTileThreads / kWarp;
constexpr int kTileEntries = 64;
constexpr int kTileChannels = 128;
constexpr int kTileColumns = 64;                   // columns loaded at once
constexpr int kTileStride = kTileColumns + 8;      // padded, so that eight rows' 16 bytes are in different banks
constexpr int kTileLoads = kTileColumns / kCodes;  // loads of 16 numbers per row

struct TileShared {
  Bf16 w[kTileChannels][kTileStride];
  Bf16 x[kTileEntries][kTileStride];
};

template <Stored stored>
__device__ __forceinline__ void store_numbers(Bf16* to, const Sixteen<stored>& from) {
  store_16(to, uint4{from.two(0), from.two(1), from.two(2), from.two(3)});
  store_16(to + 8, uint4{from.two(4), from.two(5), from.two(6), from.two(7)});
}

// Many tokens: grid (out / kTileChannels, experts, blocks_of_expert()). A warp has 32 channels and all entries of a tile. The
// next data is loaded while the tensor cores work on the current data.
template <Stored stored>
__global__ void __launch_bounds__(kTileThreads) multiply_experts_tiles_kernel(MultiplyExperts work) {
  auto& shared = shared_memory<TileShared>();
  constexpr int kOfX = kTileEntries * kTileLoads / kTileThreads;  // loads per thread
  constexpr int kOfW = kTileChannels * kTileLoads / kTileThreads;
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const auto expert = static_cast<int>(blockIdx.y);
  const int end = work.begins[expert + 1];
  const int first_channel = static_cast<int>(blockIdx.x) * kTileChannels;
  const void* w = matrix_of<Bf16, stored>(work, expert);
  for (int first = work.begins[expert] + static_cast<int>(blockIdx.z) * kTileEntries; first < end;
       first += static_cast<int>(gridDim.z) * kTileEntries) {
    Sixteen<Stored::kPlain> next_x[kOfX];
    Sixteen<stored> next_w[kOfW];
    const auto load = [&](int begin) {
#pragma unroll
      for (int i = 0; i < kOfX; ++i) {
        const int at = thread + i * kTileThreads;
        const int entry = first + at / kTileLoads;
        const int column = begin + at % kTileLoads * kCodes;
        next_x[i] = {};
        if (entry >= end || column >= work.in) continue;
        const int row = work.rows == nullptr ? entry : work.rows[entry];
        next_x[i].load(work.x, static_cast<long long>(row) * work.in + column);
      }
#pragma unroll
      for (int i = 0; i < kOfW; ++i) {
        const int at = thread + i * kTileThreads;
        const int channel = first_channel + at / kTileLoads;
        const int column = begin + at % kTileLoads * kCodes;
        next_w[i] = {};
        if (channel < work.out && column < work.in) next_w[i].load(w, static_cast<long long>(channel) * work.in + column);
      }
    };
    float sums[2][kTileEntries / 8][4] = {};
    load(0);
    for (int begin = 0; begin < work.in; begin += kTileColumns) {
      __syncthreads();  // everyone has used the current data
#pragma unroll
      for (int i = 0; i < kOfX; ++i) {
        const int at = thread + i * kTileThreads;
        store_numbers(&shared.x[at / kTileLoads][at % kTileLoads * kCodes], next_x[i]);
      }
#pragma unroll
      for (int i = 0; i < kOfW; ++i) {
        const int at = thread + i * kTileThreads;
        store_numbers(&shared.w[at / kTileLoads][at % kTileLoads * kCodes], next_w[i]);
      }
      __syncthreads();
      if (begin + kTileColumns < work.in) load(begin + kTileColumns);
#pragma unroll
      for (int column = 0; column < kTileColumns; column += 16) {
        unsigned left[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          // Matrices: channels 0 to 7 and 8 to 15 with the first 8 columns, then with the other 8.
          load_matrices<false>(left[m], &shared.w[(warp * 2 + m) * 16 + lane % 16][column + lane / 16 * 8]);
        }
#pragma unroll
        for (int n = 0; n < kTileEntries / 8; n += 2) {
          // Matrices: 8 entries with the first 8 columns and with the other 8, then the same for the next 8 entries.
          unsigned right[4];
          load_matrices<false>(right, &shared.x[n * 8 + lane / 16 * 8 + lane % 8][column + lane / 8 % 2 * 8]);
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            multiply_accumulate(sums[m][n], left[m], right[0], right[1]);
            multiply_accumulate(sums[m][n + 1], left[m], right[2], right[3]);
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kTileEntries / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int channel = first_channel + (warp * 2 + m) * 16 + i / 2 * 8 + lane / 4;
          const int entry = first + n * 8 + lane % 4 * 2 + i % 2;
          if (channel >= work.out || entry >= end) continue;
          const float scale =
              stored == Stored::kPlain ? 1.0F : work.scales[static_cast<long long>(expert) * work.out + channel];
          put<Bf16>(work, entry, channel, sums[m][n][i] * scale);
        }
      }
    }
  }
}

constexpr int kPlainThreads = 256;
constexpr int kPlainEntries = 32;
constexpr int kPlainChannels = 64;
constexpr int kPlainColumns = 16;                                           // columns loaded at once
constexpr int kPlainEach = kPlainEntries * kPlainChannels / kPlainThreads;  // sums per thread: entries of one channel
constexpr int kPlainApart = kPlainEntries / kPlainEach;                     // distance between a thread's entries

struct PlainShared {
  float w[kPlainChannels][kPlainColumns + 1];
  float x[kPlainEntries][kPlainColumns + 1];
};

// FP32, and widths that are not multiples of 16: grid (out / kPlainChannels, experts, blocks_of_expert()). Sums are FP32
// multiply-adds in the order of columns.
template <typename T, Stored stored>
__global__ void __launch_bounds__(kPlainThreads) multiply_experts_kernel(MultiplyExperts work) {
  auto& shared = shared_memory<PlainShared>();
  const auto thread = static_cast<int>(threadIdx.x);
  const auto expert = static_cast<int>(blockIdx.y);
  const int end = work.begins[expert + 1];
  const int first_channel = static_cast<int>(blockIdx.x) * kPlainChannels;
  const void* w = matrix_of<T, stored>(work, expert);
  const int own_channel = thread % kPlainChannels;
  const int own_entry = thread / kPlainChannels;
  for (int first = work.begins[expert] + static_cast<int>(blockIdx.z) * kPlainEntries; first < end;
       first += static_cast<int>(gridDim.z) * kPlainEntries) {
    float sums[kPlainEach] = {};
    for (int begin = 0; begin < work.in; begin += kPlainColumns) {
      __syncthreads();  // everyone has used the current data
      for (int i = thread; i < kPlainChannels * kPlainColumns; i += kPlainThreads) {
        const int channel = first_channel + i / kPlainColumns;
        const int column = begin + i % kPlainColumns;
        const bool there = channel < work.out && column < work.in;
        shared.w[i / kPlainColumns][i % kPlainColumns] =
            there ? stored_at<T, stored>(w, static_cast<long long>(channel) * work.in + column) : 0.0F;
      }
      for (int i = thread; i < kPlainEntries * kPlainColumns; i += kPlainThreads) {
        const int entry = first + i / kPlainColumns;
        const int column = begin + i % kPlainColumns;
        const bool there = entry < end && column < work.in;
        const auto row = static_cast<long long>(!there || work.rows == nullptr ? entry : work.rows[entry]);
        shared.x[i / kPlainColumns][i % kPlainColumns] =
            there ? to_float(static_cast<const T*>(work.x)[row * work.in + column]) : 0.0F;
      }
      __syncthreads();
#pragma unroll
      for (int column = 0; column < kPlainColumns; ++column) {
        const float weight = shared.w[own_channel][column];
#pragma unroll
        for (int i = 0; i < kPlainEach; ++i) sums[i] += shared.x[own_entry + i * kPlainApart][column] * weight;
      }
    }
    const int channel = first_channel + own_channel;
    if (channel >= work.out) continue;
    const float scale = stored == Stored::kPlain ? 1.0F : work.scales[static_cast<long long>(expert) * work.out + channel];
#pragma unroll
    for (int i = 0; i < kPlainEach; ++i) {
      const int entry = first + own_entry + i * kPlainApart;
      if (entry < end) put<T>(work, entry, channel, sums[i] * scale);
    }
  }
}

// grid (tokens, hidden / threads)
__global__ void __launch_bounds__(kRowThreads) add_experts_kernel(AddExperts work) {
  const int i = static_cast<int>(blockIdx.y) * kRowThreads + static_cast<int>(threadIdx.x);
  if (i >= work.hidden) return;
  const auto token = static_cast<long long>(blockIdx.x);
  float& to = work.residual[token * work.hidden + i];
  float sum = work.accumulate ? to : 0.0F;
  for (int j = 0; j < work.each; ++j) {
    const int entry = work.places[token * work.each + j];
    if (entry < 0) continue;
    sum += work.weights[token * work.each + j] * work.rows[static_cast<long long>(entry) * work.hidden + i];
  }
  to = sum;
}

}  // namespace
}  // namespace windlass::worker::cuda
