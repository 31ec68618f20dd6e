// Products with 8-bit weights. For few rows of x, codes are read once and converted to brain floats on their way to the tensor
// cores. For many rows, codes are unpacked part by part for the library's product, or x is converted to FP8 too and the library
// multiplies codes.
//
// Each code is exact as a brain float. A row's scale is applied to its sums if codes go to the tensor cores, and to its numbers
// if they are unpacked.
#pragma once

#include "worker/backend/cuda/kernels/execution.cuh"

namespace windlass::worker::cuda {
namespace {

// The lowest byte of a word as a number: two's complement, or e4m3.
template <bool fp8>
__device__ __forceinline__ float number_of(unsigned code) {
  if (!fp8) return static_cast<float>(static_cast<int>(code << 24U) >> 24);
  // Puts exponent and mantissa where a float has them; the float's exponent bias is larger by 120.
  const float magnitude = __uint_as_float((code & 0x7FU) << 20U) * 0x1p120F;
  return (code & 0x80U) == 0 ? magnitude : -magnitude;
}

constexpr int kUnpackThreads = 256;
constexpr int kCodes = 16;  // codes that a thread reads at once

// grid (rows, in / threads / kCodes)
template <typename T, bool fp8>
__global__ void __launch_bounds__(kUnpackThreads) unpack_rows_kernel(UnpackRows work) {
  const auto row = static_cast<long long>(blockIdx.x);
  const int first = (static_cast<int>(blockIdx.y) * kUnpackThreads + static_cast<int>(threadIdx.x)) * kCodes;
  if (first >= work.in) return;
  const std::uint8_t* from = work.codes + row * work.in + first;
  T* to = static_cast<T*>(work.to) + row * work.in + first;
  const float scale = work.scales[row];
  if (work.in % kCodes != 0) {
    const int count = first + kCodes < work.in ? kCodes : work.in - first;
    for (int i = 0; i < count; ++i) to[i] = from_float<T>(number_of<fp8>(from[i]) * scale);
    return;
  }
  const uint4 raw = load_16(from);
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
  constexpr int kVec = kVector<T>;
#pragma unroll
  for (int begin = 0; begin < kCodes; begin += kVec) {
    float numbers[kVec];
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const int at = begin + i;
      numbers[i] = number_of<fp8>(words[at / 4] >> (at % 4 * 8)) * scale;
    }
    store_16(to + begin, pack(numbers));
  }
}

// The e4m3 code of a number up to 448: to nearest, ties to even. NaN stays NaN.
__device__ __forceinline__ unsigned fp8_code_of(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned sign = bits >> 24U & 0x80U;
  if (value != value) return sign | 0x7FU;
  // The reverse of number_of(): the code ends up in the highest bits, and the rest is rounded off.
  const unsigned small = __float_as_uint(__uint_as_float(bits & 0x7FFFFFFFU) * 0x1p-120F);
  return sign | (small + 0x7FFFFU + (small >> 20U & 1U)) >> 20U;
}

struct QuantiseShared {
  float largest[kUnpackThreads / kWarp];
};

// One row per thread block.
template <typename T>
__global__ void __launch_bounds__(kUnpackThreads) quantise_rows_kernel(QuantiseRows work) {
  auto& shared = shared_memory<QuantiseShared>();
  constexpr int kVec = kVector<T>;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto row = static_cast<long long>(blockIdx.x);
  const T* x = static_cast<const T*>(work.x) + row * work.in;
  float largest = 0;
  for (int i = thread * kVec; i < work.in; i += kUnpackThreads * kVec) {
    float numbers[kVec];
    unpack(load_16(x + i), numbers);
#pragma unroll
    for (int n = 0; n < kVec; ++n) largest = fmaxf(largest, fabsf(numbers[n]));
  }
  largest = max_over<kWarp>(largest);
  if (thread % kWarp == 0) shared.largest[thread / kWarp] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kUnpackThreads / kWarp; ++warp) largest = fmaxf(largest, shared.largest[warp]);
  constexpr float kLargest = 448;  // of e4m3
  const float scale = largest / kLargest;
  const bool zero = scale < 0x1p-126F;  // FP32's smallest normal number
  if (thread == 0) work.scales[row] = zero ? 0.0F : scale;
  for (int i = thread * kCodes; i < work.in; i += kUnpackThreads * kCodes) {
    unsigned words[kCodes / 4] = {};
#pragma unroll
    for (int begin = 0; begin < kCodes; begin += kVec) {
      float numbers[kVec];
      unpack(load_16(x + i + begin), numbers);
#pragma unroll
      for (int n = 0; n < kVec; ++n) {
        const int at = begin + n;
        words[at / 4] |= fp8_code_of(zero && numbers[n] == numbers[n] ? 0.0F : numbers[n] / scale) << (at % 4 * 8);
      }
    }
    store_16(work.codes + row * work.in + i, uint4{words[0], words[1], words[2], words[3]});
  }
}

constexpr int kScaled = 4;  // products scaled by one thread

// grid (rows, out / threads / kScaled)
template <typename T>
__global__ void __launch_bounds__(kUnpackThreads) scale_products_kernel(ScaleProducts work) {
  const auto row = static_cast<long long>(blockIdx.x);
  const int first = (static_cast<int>(blockIdx.y) * kUnpackThreads + static_cast<int>(threadIdx.x)) * kScaled;
  if (first >= work.out) return;
  float numbers[kScaled];
  float scales[kScaled];
  unpack(load_16(work.products + row * work.out + first), numbers);
  unpack(load_16(work.channel_scales + first), scales);
  const float of_row = work.row_scales[row];
  const long long at = row * work.stride + first;
#pragma unroll
  for (int i = 0; i < kScaled; ++i) numbers[i] *= of_row * scales[i];
  if (!work.float_out) {
    T* to = static_cast<T*>(work.y) + at;
#pragma unroll
    for (int i = 0; i < kScaled; ++i) to[i] = from_float<T>(numbers[i]);
    return;
  }
  float* to = static_cast<float*>(work.y) + at;
  if (work.accumulate) {
    float before[kScaled];
    unpack(load_16(to), before);
#pragma unroll
    for (int i = 0; i < kScaled; ++i) numbers[i] += before[i];
  }
  store_16(to, pack(numbers));
}

constexpr int kFewThreads = 256;
constexpr int kFewWarps = kFewThreads / kWarp;
constexpr int kFewChannels = 32;  // rows of w per thread block
constexpr int kFewStep = 64;      // columns of w that a warp takes at once

// How a matrix's numbers are stored: in the storage type, or as codes.
enum class Stored { kPlain, kInt8, kFp8 };

// w (out, in) and the rows of x that it is multiplied with: brain floats, or codes and scales.
struct FewRows {
  const Bf16* x;
  const std::int32_t* of_x;  // rows of x to use; null: the first ones
  const void* w;
  const float* scales;  // (out), with codes
  void* y;              // (rows, out)
  int rows;
  int in;
  int out;
  bool float_out;
  bool accumulate;
};

// kTiles: number of tiles of 8 rows of x.
template <int kTiles>
struct FewShared {
  // Rows are padded by 4 floats, so that simultaneous writes of a warp go to different banks.
  float sums[kFewWarps][kTiles * 8][kFewChannels + 4];
};

// Two codes, the lowest bytes of a word, as brain floats in a register.
template <bool fp8>
__device__ __forceinline__ unsigned two_numbers(unsigned codes) {
  return static_cast<unsigned>(bf16_bits(number_of<fp8>(codes))) | static_cast<unsigned>(bf16_bits(number_of<fp8>(codes >> 8U)))
                                                                       << 16U;
}

// 16 of a matrix's numbers, as stored.
template <Stored stored>
struct Sixteen {
  static constexpr int kLoads = stored == Stored::kPlain ? 2 : 1;
  unsigned words[4 * kLoads] = {};

  __device__ __forceinline__ void load(const void* w, long long at) {
    const auto* from = static_cast<const unsigned char*>(w) + at * kLoads;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint4 raw = load_16(from + 16 * i);
      words[4 * i] = raw.x;
      words[4 * i + 1] = raw.y;
      words[4 * i + 2] = raw.z;
      words[4 * i + 3] = raw.w;
    }
  }
  // Numbers 2 i and 2 i + 1 as brain floats in a register.
  [[nodiscard]] __device__ __forceinline__ unsigned two(int i) const {
    if constexpr (stored == Stored::kPlain) {
      return words[i];
    } else {
      return two_numbers<stored == Stored::kFp8>(words[i / 2] >> (i % 2 * 16));
    }
  }
};

// Computes channels of y from first_channel on. The warps of a block take kFewStep columns each in turn and add up their sums
// at the end, always in the same order. A lane reads 16 numbers of a row and the matching 16 of x at once. The order of columns
// inside a tensor core product does not matter as long as both operands use the same.
template <int kTiles, Stored stored>
__device__ __forceinline__ void multiply_few_rows(const FewRows& work, int first_channel) {
  auto& shared = shared_memory<FewShared<kTiles>>();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float sums[2][kTiles][4] = {};
  for (int begin = warp * kFewStep; begin < work.in; begin += kFewWarps * kFewStep) {
    const int column = begin + lane % 4 * kCodes;
    Sixteen<stored> numbers[2][2];  // of channels lane / 4 and lane / 4 + 8, and of two runs of 16 columns
    Sixteen<Stored::kPlain> x[kTiles];
    if (column < work.in) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int channel = first_channel + c * 8 + lane / 4;
        if (channel < work.out) numbers[c / 2][c % 2].load(work.w, static_cast<long long>(channel) * work.in + column);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int row = n * 8 + lane / 4;
        if (row >= work.rows) continue;
        const int of_x = work.of_x == nullptr ? row : work.of_x[row];
        x[n].load(work.x, static_cast<long long>(of_x) * work.in + column);
      }
    }
#pragma unroll
    for (int four = 0; four < 4; ++four) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const Sixteen<stored>& low = numbers[m][0];
        const Sixteen<stored>& high = numbers[m][1];
        const unsigned left[4] = {low.two(2 * four), high.two(2 * four), low.two(2 * four + 1), high.two(2 * four + 1)};
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          if (n * 8 < work.rows) multiply_accumulate(sums[m][n], left, x[n].two(2 * four), x[n].two(2 * four + 1));
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        shared.sums[warp][n * 8 + lane % 4 * 2 + i % 2][m * 16 + i / 2 * 8 + lane / 4] = sums[m][n][i];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTiles * 8 * kFewChannels; i += kFewThreads) {
    const int row = i / kFewChannels;
    const int channel = first_channel + i % kFewChannels;
    if (row >= work.rows || channel >= work.out) continue;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kFewWarps; ++w) total += shared.sums[w][row][i % kFewChannels];
    if (stored != Stored::kPlain) total *= work.scales[channel];
    const auto at = static_cast<long long>(row) * work.out + channel;
    if (!work.float_out) {
      static_cast<Bf16*>(work.y)[at] = from_float<Bf16>(total);
      continue;
    }
    float& to = static_cast<float*>(work.y)[at];
    to = work.accumulate ? to + total : total;
  }
}

// grid (out / kFewChannels)
template <int kTiles, Stored stored>
__global__ void __launch_bounds__(kFewThreads) multiply_few_kernel(MultiplyFew work) {
  multiply_few_rows<kTiles, stored>({static_cast<const Bf16*>(work.x), nullptr, work.codes, work.scales, work.y, work.rows,
                                     work.in, work.out, work.float_out, work.accumulate},
                                    static_cast<int>(blockIdx.x) * kFewChannels);
}

}  // namespace
}  // namespace windlass::worker::cuda
