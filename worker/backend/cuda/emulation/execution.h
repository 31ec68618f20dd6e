// Emulates CUDA's execution model on one CPU thread, as far as kernels/ uses it, so that tests run the real kernel code.
//
// Each CUDA thread is a fiber. It runs until it must wait for others, at __syncthreads() or where its warp meets (shuffles,
// __syncwarp()); then another one runs. The Schedule determines the order, so that runs with different schedules give different
// results if a barrier is missing. Blocks run one after the other. Shared memory has exactly the size given at launch and
// initially holds NaNs: the address sanitizer detects accesses beyond it, and results reveal reads before writes.
//
// What CUDA leaves undefined is an error here: threads that end while others wait at a barrier; lanes of a warp that do not all
// meet at one place of the code; unaligned accesses to 4 or 16 bytes. run_grid() returns the first error of a launch.
//
// Names are CUDA's, but in this namespace. State is per host thread, so several may run grids at the same time.
#pragma once

#include <array>
#include <bit>
#include <cmath>  // also fmaxf(), expf() and exp2f()
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "planner/base/result.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace windlass::worker::cuda {

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  constexpr dim3() = default;
  constexpr explicit dim3(unsigned x_size, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

extern constinit thread_local dim3 threadIdx;
extern constinit thread_local dim3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

namespace emulation {

// The order of runnable threads: by number or reversed, with each warp running as far as possible before the next begins; or
// all in turn, shuffled each time with this seed.
struct Schedule {
  enum class Order { kForward, kBackward, kShuffled };
  Order order = Order::kForward;
  std::uint64_t seed = 0;
};

// Runs `thread` for each thread of each block. Error: kInternal naming the block and what its threads did. REQUIRES: threads is
// a multiple of 32 and at most 1024.
[[nodiscard]] Result<void> run_grid(dim3 grid, int threads, std::size_t shared_bytes, const Schedule& schedule,
                                    const std::function<void()>& thread);

// For kernel code.
[[nodiscard]] void* dynamic_shared(std::size_t bytes);
void wait_for_block(int line);
// Gives `bits` and returns what all lanes of the warp gave; every lane must pass the same line.
using OfLanes = std::array<std::uint64_t, 32>;
[[nodiscard]] OfLanes meet_warp(std::uint64_t bits, int line);
[[nodiscard]] int lane();
void require_aligned(const void* at, std::uintptr_t bytes = 16);
[[noreturn]] void fail(std::string what);

}  // namespace emulation

template <typename Shared>
Shared& shared_memory() {
  return *static_cast<Shared*>(emulation::dynamic_shared(sizeof(Shared)));
}

// The emulation identifies places in the code by their line.
inline void __syncthreads(int line = __builtin_LINE()) { emulation::wait_for_block(line); }

inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }

inline int __shfl_sync(unsigned mask, int value, int from, int line = __builtin_LINE()) {
  if (mask != 0xFFFFFFFFU) emulation::fail("a shuffle of some lanes alone");
  return static_cast<int>(emulation::meet_warp(static_cast<std::uint32_t>(value), line)[static_cast<std::size_t>(from & 31)]);
}
inline int __shfl_xor_sync(unsigned mask, int value, int lanes, int line = __builtin_LINE()) {
  return __shfl_sync(mask, value, emulation::lane() ^ lanes, line);
}
inline float __shfl_sync(unsigned mask, float value, int from, int line = __builtin_LINE()) {
  return std::bit_cast<float>(__shfl_sync(mask, std::bit_cast<int>(value), from, line));
}
inline float __shfl_xor_sync(unsigned mask, float value, int lanes, int line = __builtin_LINE()) {
  return __shfl_sync(mask, value, emulation::lane() ^ lanes, line);
}

inline float rsqrtf(float value) { return 1.0F / std::sqrt(value); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

inline uint4 load_16(const void* from) {
  emulation::require_aligned(from);
  uint4 value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline void store_16(void* to, const uint4& value) {
  emulation::require_aligned(to);
  std::memcpy(to, &value, sizeof(value));
}

inline unsigned load_4(const void* from) {
  emulation::require_aligned(from, 4);
  unsigned value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline void store_4(void* to, unsigned value) {
  emulation::require_aligned(to, 4);
  std::memcpy(to, &value, sizeof(value));
}

// Rounds to nearest, ties to even, like cvt.rn.bf16.f32.
inline std::uint16_t bf16_bits(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

// The tensor cores' operations, as execution.cuh defines them for nvcc.
void multiply_accumulate(float (&sum)[4], const unsigned (&a)[4], unsigned b_low, unsigned b_high, int line = __builtin_LINE());
template <bool transposed>
void load_matrices(unsigned (&to)[4], const void* row, int line = __builtin_LINE());

}  // namespace windlass::worker::cuda
