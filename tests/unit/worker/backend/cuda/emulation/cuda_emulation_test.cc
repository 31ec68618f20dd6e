// The emulation of CUDA's execution model: that it runs kernels, and detects the errors it was made for.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/backend/cuda/emulation/execution.h"

namespace windlass::worker::cuda {
namespace {

using emulation::run_grid;
using emulation::Schedule;
using Order = Schedule::Order;
using ::testing::HasSubstr;

const Schedule kSchedules[] = {{Order::kForward}, {Order::kBackward}, {Order::kShuffled, 1}, {Order::kShuffled, 2}};

struct Floats {
  float at[64];
};

// Given a kernel in which threads read what others wrote before a barrier and sum it by shuffles; expects every block and
// thread to run once, with the same result in every order.
TEST(CudaEmulation, RunsBlocksOfThreads) {
  for (const Schedule& schedule : kSchedules) {
    std::vector<float> out(6 * 64);
    const auto outcome = run_grid(dim3(2, 3), 64, sizeof(Floats), schedule, [&] {
      auto& shared = shared_memory<Floats>();
      const auto i = threadIdx.x;
      shared.at[i] = static_cast<float>(i);
      __syncthreads();
      float sum = shared.at[63 - i];
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
      const float second = __shfl_sync(0xFFFFFFFFU, sum + static_cast<float>(i % 32), 5);
      out[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + i] += second;
    });
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    for (std::size_t i = 0; i < out.size(); ++i) {
      // A warp has the other's numbers: 32 to 63, or 0 to 31.
      EXPECT_EQ(out[i], static_cast<float>((i % 64 < 32 ? 47.5 : 15.5) * 32 + 5));
    }
  }
}

// Given threads that exit, or take another path, while others wait at a barrier or in a shuffle; expects an error that says
// which threads wait for which.
TEST(CudaEmulation, SeesThreadsThatDoNotMeet) {
  const auto message = [](const std::function<void()>& thread) {
    const auto outcome = run_grid(dim3(1), 64, 0, {}, thread);
    return outcome.ok() ? "" : outcome.error().message;
  };
  EXPECT_THAT(message([] {
                if (threadIdx.x != 3) __syncthreads();
              }),
              HasSubstr("block (0, 0, 0): of 64 threads 1 have ended, 63 wait for the block, 0 for their warp"));
  EXPECT_THAT(message([] {
                if (threadIdx.x % 2 == 0) static_cast<void>(__shfl_xor_sync(0xFFFFFFFFU, 1.0F, 2));
              }),
              HasSubstr("32 have ended, 0 wait for the block, 32 for their warp"));
  const auto barriers = [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  EXPECT_THAT(message(barriers), HasSubstr("a barrier: some threads wait in line"));
  const auto shuffles = [] {
    float x = 1;
    if (threadIdx.x % 2 == 0) {
      x = __shfl_xor_sync(0xFFFFFFFFU, x, 2);
    } else {
      x = __shfl_xor_sync(0xFFFFFFFFU, x, 2);
    }
  };
  EXPECT_THAT(message(shuffles), HasSubstr("a warp: some lanes wait in line"));
  EXPECT_THAT(message([] { static_cast<void>(__shfl_xor_sync(0xFFFFU, 1.0F, 2)); }),
              HasSubstr("a shuffle of some lanes alone"));
}

// Given a missing barrier; expects a run in another order to read unwritten data: shared memory starts as NaNs.
TEST(CudaEmulation, OrdersShowMissingBarriers) {
  std::vector<bool> whole;
  for (const Schedule& schedule : kSchedules) {
    std::vector<float> out(64);
    const auto outcome = run_grid(dim3(1), 64, sizeof(Floats), schedule, [&] {
      auto& shared = shared_memory<Floats>();
      shared.at[threadIdx.x] = 1;
      out[threadIdx.x] = shared.at[threadIdx.x / 2];
    });
    ASSERT_TRUE(outcome.ok());
    whole.push_back(std::none_of(out.begin(), out.end(), [](float value) { return std::isnan(value); }));
  }
  EXPECT_EQ(whole, (std::vector<bool>{true, false, false, false}));
}

// Given a warp that overwrites what another still has to read, because a barrier is missing; expects that in either order the
// first warp gets so far ahead, across shuffles of its own, that the other reads the new data.
TEST(CudaEmulation, AWarpRunsAhead) {
  for (const auto& [order, late] : {std::pair{Order::kForward, 32U}, std::pair{Order::kBackward, 0U}}) {
    std::vector<float> out(64);
    const auto outcome = run_grid(dim3(1), 64, sizeof(Floats), {order}, [&] {
      auto& shared = shared_memory<Floats>();
      shared.at[threadIdx.x] = 1;
      __syncthreads();
      for (int times = 0; times < 5; ++times) static_cast<void>(__shfl_xor_sync(0xFFFFFFFFU, 1.0F, 1));
      out[threadIdx.x] = shared.at[63 - threadIdx.x];
      static_cast<void>(__shfl_xor_sync(0xFFFFFFFFU, 1.0F, 1));
      shared.at[threadIdx.x] = 2;
    });
    ASSERT_TRUE(outcome.ok());
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i / 32 * 32 == late ? 2 : 1) << i;
  }
}

// Given an unaligned access to 16 bytes, more shared memory than the launch requested, and a grid beyond a GPU's limits;
// expects errors.
TEST(CudaEmulation, SeesWhatAGpuRejects) {
  alignas(16) float values[8] = {};
  const auto misaligned = run_grid(dim3(1), 32, 0, {}, [&] { static_cast<void>(load_16(values + 1)); });
  ASSERT_FALSE(misaligned.ok());
  EXPECT_THAT(misaligned.error().message, HasSubstr("thread 0: an access to 16 bytes that are not aligned to 16"));
  const auto large = run_grid(dim3(1), 32, 4, {}, [&] { shared_memory<Floats>().at[0] = 1; });
  ASSERT_FALSE(large.ok());
  EXPECT_THAT(large.error().message, HasSubstr("shared memory: 256 bytes are used, 4 were asked for"));
  EXPECT_FALSE(run_grid(dim3(1, 65536), 32, 0, {}, [] {}).ok());
  EXPECT_FALSE(run_grid(dim3(0), 32, 0, {}, [] {}).ok());
}

// Given floats around the midpoints between brain floats; expects rounding to nearest, ties to even, and unchanged infinities
// and NaNs.
TEST(CudaEmulation, RoundsBrainFloatsAsTheDeviceDoes) {
  EXPECT_EQ(bf16_bits(1.0F), 0x3F80);
  EXPECT_EQ(bf16_bits(1.0F + 0x1p-8F), 0x3F80);
  EXPECT_EQ(bf16_bits(1.0F + 0x1p-8F + 0x1p-20F), 0x3F81);
  EXPECT_EQ(bf16_bits(1.0F + 3 * 0x1p-8F), 0x3F82);
  EXPECT_EQ(bf16_bits(-INFINITY), 0xFF80);
  EXPECT_EQ(bf16_bits(NAN), 0x7FFF);
}

}  // namespace
}  // namespace windlass::worker::cuda
