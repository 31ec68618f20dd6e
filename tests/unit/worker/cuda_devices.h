// The devices on which tests run the CUDA backend and its kernels: always the emulation, and a GPU if there is one.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "worker/backend/cuda/cuda_device.h"
#include "worker/backend/cuda/device.h"
#include "worker/backend/cuda/emulation/emulated_device.h"
#include "worker/model/ggml_blocks.h"

namespace windlass::worker::testing {

struct CudaCase {
  const char* name;
  bool gpu;
  cuda::Precision precision;
  cuda::emulation::Schedule::Order order = cuda::emulation::Schedule::Order::kForward;
};

inline void PrintTo(const CudaCase& cuda_case, std::ostream* out) { *out << cuda_case.name; }
inline std::string case_name(const ::testing::TestParamInfo<CudaCase>& info) { return info.param.name; }

// Different orders of threads reveal a missing barrier.
inline std::vector<CudaCase> cuda_cases() {
  using Order = cuda::emulation::Schedule::Order;
  return {{"EmulatedFp32", false, cuda::Precision::kFp32, Order::kForward},
          {"EmulatedFp32Backward", false, cuda::Precision::kFp32, Order::kBackward},
          {"EmulatedFp32Shuffled", false, cuda::Precision::kFp32, Order::kShuffled},
          {"EmulatedBf16", false, cuda::Precision::kBf16, Order::kForward},
          {"EmulatedBf16Backward", false, cuda::Precision::kBf16, Order::kBackward},
          {"GpuFp32", true, cuda::Precision::kFp32},
          {"GpuBf16", true, cuda::Precision::kBf16}};
}

// A test with a device; skips if that is a GPU and there is none.
class OnCudaDevice : public ::testing::TestWithParam<CudaCase> {
 protected:
  void SetUp() override {
    if (GetParam().gpu) {
      auto opened = cuda::open_device(precision());
      if (!opened.ok()) GTEST_SKIP() << "no GPU: " << opened.error().message;
      device_ = std::move(opened).value();
    } else {
      device_ = emulated();
    }
  }
  [[nodiscard]] static std::unique_ptr<cuda::Device> emulated() {
    cuda::emulation::DeviceOptions options;
    options.precision = precision();
    options.schedule = {GetParam().order, 7};
    return cuda::emulation::make_emulated_device(options);
  }
  [[nodiscard]] static cuda::Precision precision() { return GetParam().precision; }
  [[nodiscard]] static bool bf16() { return precision() == cuda::Precision::kBf16; }

  // The shapes of an operation that this case tries. In CI the emulation's thread orders share them, so that each precision
  // tries every shape and each order some of them.
  template <typename Shape>
  [[nodiscard]] static std::vector<Shape> shared_out(const std::vector<Shape>& shapes) {
    if (GetParam().gpu) return shapes;
    using Order = cuda::emulation::Schedule::Order;
    const std::size_t turn = GetParam().order == Order::kForward ? 0 : GetParam().order == Order::kBackward ? 1 : 2;
    return effort_share(shapes, turn, bf16() ? 2 : 3);
  }

  // Uniform in (-1, 1), exact in the precision.
  [[nodiscard]] static std::vector<float> random(Rng& rng, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      value = static_cast<float>(rng.uniform(-1, 1));
      if (bf16()) value = float_from_bf16(bf16_from_float(value));
    }
    return values;
  }

  // Copies to the device: as the precision's storage type, or unchanged.
  [[nodiscard]] cuda::OnDevice put(const std::vector<float>& values) {
    if (!bf16()) return put_plain(values);
    std::vector<std::uint16_t> bits(values.size());
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = bf16_from_float(values[i]);
    return put_plain(bits);
  }
  template <typename T>
  [[nodiscard]] cuda::OnDevice put_plain(const std::vector<T>& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
    cuda::OnDevice memory = cuda::OnDevice::make(*device_, bytes).value();
    const cuda::Pinned pinned = cuda::Pinned::make(*device_, bytes).value();
    std::copy(values.begin(), values.end(), pinned.as<T>());
    device_->upload(kStream, memory.get(), pinned.get(), bytes);
    EXPECT_TRUE(device_->wait(kStream).ok());
    return memory;
  }
  // Room for this many elements of the storage type, all zero.
  [[nodiscard]] cuda::OnDevice zeros(std::int64_t count) {
    cuda::OnDevice memory = cuda::OnDevice::make(*device_, count * cuda::bytes_of(precision())).value();
    device_->clear(kStream, memory.get(), memory.bytes());
    return memory;
  }

  // Waits for all work, then copies the contents back.
  [[nodiscard]] std::vector<float> get(const cuda::OnDevice& memory, std::int64_t count) {
    if (!bf16()) return get_floats(memory, count);
    const auto bits = get_plain<std::uint16_t>(memory, count);
    std::vector<float> values(bits.size());
    for (std::size_t i = 0; i < bits.size(); ++i) values[i] = float_from_bf16(bits[i]);
    return values;
  }
  [[nodiscard]] std::vector<float> get_floats(const cuda::OnDevice& memory, std::int64_t count) {
    return get_plain<float>(memory, count);
  }

  template <typename T>
  [[nodiscard]] std::vector<T> get_plain(const cuda::OnDevice& memory, std::int64_t count) {
    const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
    const cuda::Pinned pinned = cuda::Pinned::make(*device_, bytes).value();
    device_->download(kStream, pinned.get(), memory.get(), bytes);
    const auto done = device_->wait(kStream);
    EXPECT_TRUE(done.ok()) << done.error().message;
    return std::vector<T>(pinned.as<T>(), pinned.as<T>() + count);
  }

  // Expects `fp32` accuracy in FP32, and one 8-bit step more in BF16; both relative to the larger of 1 and the expected value.
  static void expect_near(const std::vector<float>& found, const std::vector<float>& expected, double fp32) {
    ASSERT_EQ(found.size(), expected.size());
    const double tolerance = bf16() ? fp32 + 0x1p-8 : fp32;
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], tolerance * std::max(1.0, std::fabs(static_cast<double>(expected[i])))) << "at " << i;
    }
  }

  static constexpr auto kStream = cuda::Device::Stream::kCompute;
  [[nodiscard]] const cuda::Kernels& kernels() const { return device_->kernels(); }
  [[nodiscard]] cuda::StreamHandle stream() const { return device_->handle(kStream); }

  std::unique_ptr<cuda::Device> device_;
};

}  // namespace windlass::worker::testing
