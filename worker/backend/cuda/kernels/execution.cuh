// What every kernel file includes: CUDA's built-ins, from nvcc or from the emulation, and helpers for the storage types and
// the tensor cores.
//
// All kernels and helpers are in unnamed namespaces, because a test program contains them twice, compiled by nvcc and by the
// C++ compiler, and the linker must not merge them.
#pragma once

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include "worker/backend/cuda/emulation/execution.h"
#endif

#include "worker/backend/cuda/kernels.h"

namespace windlass::worker::cuda {
namespace {

#if defined(__CUDACC__)
// The bits of the brain float nearest to a value, ties to even.
__device__ __forceinline__ std::uint16_t bf16_bits(float value) {
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// Loads 16 bytes from an address aligned to 16.
__device__ __forceinline__ uint4 load_16(const void* from) { return *static_cast<const uint4*>(from); }
__device__ __forceinline__ void store_16(void* to, const uint4& value) { *static_cast<uint4*>(to) = value; }

// Likewise for 4 bytes.
__device__ __forceinline__ unsigned load_4(const void* from) { return *static_cast<const unsigned*>(from); }
__device__ __forceinline__ void store_4(void* to, unsigned value) { *static_cast<unsigned*>(to) = value; }

// For a whole warp: sum (16, 8) += a (16, 16) * b (16, 8), in brain floats, on the tensor cores. The lane of each element: PTX
// ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". With g = lane / 4 and c = 2 (lane % 4): sum has rows g and
// g + 8 with columns c, c + 1; a has rows g, g + 8, g, g + 8 with columns c, c + 1 and then c + 8, c + 9; b has column g with
// rows c, c + 1 and then c + 8, c + 9.
__device__ __forceinline__ void multiply_accumulate(float (&sum)[4], const unsigned (&a)[4], unsigned b_low, unsigned b_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}
// Loads four (8, 8) matrices of brain floats from shared memory; lane l names row l % 8 of matrix l / 8. Each lane gets row g,
// columns c and c + 1, of each matrix; transposed: column g, rows c and c + 1.
template <bool transposed>
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const void* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  }
}

// The memory shared by the threads of a block; its size is set at launch.
template <typename Shared>
__device__ __forceinline__ Shared& shared_memory() {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return *reinterpret_cast<Shared*>(dynamic_shared);
}
#endif

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;
// Below every score, yet far enough from a float's limit that differences stay finite.
constexpr float kLowestScore = -1e30F;
constexpr float kLog2E = 1.44269504088896F;

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(Bf16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16U); }

template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float value) {
  return Bf16{bf16_bits(value)};
}

// Elements of a storage type in the 16 bytes that a thread reads at once.
template <typename T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// The 16 bytes as floats.
__device__ __forceinline__ void unpack(const uint4& raw, float (&to)[4]) {
  to[0] = __uint_as_float(raw.x);
  to[1] = __uint_as_float(raw.y);
  to[2] = __uint_as_float(raw.z);
  to[3] = __uint_as_float(raw.w);
}
__device__ __forceinline__ void unpack(const uint4& raw, float (&to)[8]) {
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16U);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
}
__device__ __forceinline__ uint4 pack(const float (&from)[4]) {
  return uint4{__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]), __float_as_uint(from[3])};
}
__device__ __forceinline__ uint4 pack(const float (&from)[8]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = static_cast<unsigned>(bf16_bits(from[2 * i])) | (static_cast<unsigned>(bf16_bits(from[2 * i + 1])) << 16U);
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

// The sum over lanes of a warp whose numbers differ only in the bits below `lanes`, a power of two; every lane gets it.
template <int lanes>
__device__ __forceinline__ float sum_over(float value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}
template <int lanes>
__device__ __forceinline__ float max_over(float value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

}  // namespace
}  // namespace windlass::worker::cuda
