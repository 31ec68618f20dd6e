// Implements gpu_rates.h, timed with the device's own events.
#include "tests/bench/gpu/gpu_rates.h"

#include <algorithm>
#include <array>
#include <functional>

#include <cuda_runtime.h>
#include <fmt/core.h>

#include "planner/base/rng.h"
#include "worker/backend/cuda/cuda_device.h"
#include "worker/model/ggml_blocks.h"

namespace windlass::bench {
namespace {

using worker::cuda::Device;
using worker::cuda::OnDevice;
using worker::cuda::Pinned;

constexpr std::int64_t kCopyBytes = 4LL << 30U;
constexpr std::int64_t kLinkBytes = 256LL << 20U;
constexpr std::int64_t kSide = 8192;

Error failed(const char* what, cudaError_t status) {
  return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", what, cudaGetErrorString(status))};
}

// Seconds that the work takes on the stream: the median of ten runs, after three warm-up runs.
Result<double> seconds_of(cudaStream_t stream, const std::function<void()>& work) {
  std::array<cudaEvent_t, 2> events = {};
  for (cudaEvent_t& event : events) {
    if (const auto status = cudaEventCreate(&event); status != cudaSuccess) return failed("cudaEventCreate", status);
  }
  std::array<double, 10> seconds = {};
  cudaError_t status = cudaSuccess;
  for (int i = -3; i < static_cast<int>(seconds.size()) && status == cudaSuccess; ++i) {
    cudaEventRecord(events[0], stream);
    work();
    cudaEventRecord(events[1], stream);
    status = cudaEventSynchronize(events[1]);
    float ms = 0;
    if (status == cudaSuccess) status = cudaEventElapsedTime(&ms, events[0], events[1]);
    if (i >= 0) seconds[static_cast<std::size_t>(i)] = static_cast<double>(ms) / 1e3;
  }
  for (const cudaEvent_t event : events) cudaEventDestroy(event);
  if (status != cudaSuccess) return failed("the device's work", status);
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

Result<GpuRates> measure_gpu() {
  WINDLASS_ASSIGN_OR_RETURN(const auto device, worker::cuda::open_device(worker::cuda::Precision::kBf16));
  constexpr auto kStream = Device::Stream::kCompute;
  const auto stream = static_cast<cudaStream_t>(device->handle(kStream));
  GpuRates rates;
  {
    WINDLASS_ASSIGN_OR_RETURN(const OnDevice from, OnDevice::make(*device, kCopyBytes));
    WINDLASS_ASSIGN_OR_RETURN(const OnDevice to, OnDevice::make(*device, kCopyBytes));
    WINDLASS_ASSIGN_OR_RETURN(const double seconds, seconds_of(stream, [&] {
                                cudaMemcpyAsync(to.get(), from.get(), kCopyBytes, cudaMemcpyDeviceToDevice, stream);
                              }));
    rates.memory_bytes_per_s = 2 * static_cast<double>(kCopyBytes) / seconds;
  }
  WINDLASS_ASSIGN_OR_RETURN(const Pinned host, Pinned::make(*device, kLinkBytes));
  Rng rng(1, "gpu rates");
  auto* numbers = host.as<std::uint16_t>();
  for (std::int64_t i = 0; i < kSide * kSide; ++i) {
    numbers[i] = worker::bf16_from_float(static_cast<float>(rng.uniform(-1, 1)));  // zeros would run faster
  }
  WINDLASS_ASSIGN_OR_RETURN(const OnDevice link, OnDevice::make(*device, kLinkBytes));
  WINDLASS_ASSIGN_OR_RETURN(const double up,
                            seconds_of(stream, [&] { device->upload(kStream, link.get(), host.get(), kLinkBytes); }));
  WINDLASS_ASSIGN_OR_RETURN(const double down,
                            seconds_of(stream, [&] { device->download(kStream, host.get(), link.get(), kLinkBytes); }));
  rates.upload_bytes_per_s = static_cast<double>(kLinkBytes) / up;
  rates.download_bytes_per_s = static_cast<double>(kLinkBytes) / down;
  constexpr std::int64_t kMatrixBytes = kSide * kSide * 2;
  static_assert(kMatrixBytes <= kLinkBytes);
  WINDLASS_ASSIGN_OR_RETURN(const OnDevice x, OnDevice::make(*device, kMatrixBytes));
  WINDLASS_ASSIGN_OR_RETURN(const OnDevice w, OnDevice::make(*device, kMatrixBytes));
  WINDLASS_ASSIGN_OR_RETURN(const OnDevice y, OnDevice::make(*device, kMatrixBytes));
  device->upload(kStream, x.get(), host.get(), kMatrixBytes);
  device->upload(kStream, w.get(), host.get(), kMatrixBytes);
  WINDLASS_ASSIGN_OR_RETURN(const double product, seconds_of(stream, [&] {
                              device->gemm({x.get(), w.get(), y.get(), kSide, kSide, kSide});
                            }));
  rates.bf16_flop_per_s = 2.0 * kSide * kSide * kSide / product;
  WINDLASS_RETURN_IF_ERROR(device->wait(kStream));
  return rates;
}

}  // namespace windlass::bench
