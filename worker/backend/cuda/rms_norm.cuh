// RMSNorm on the device. CPU twin: cpu::rms_norm.
#pragma once

#include <cuda_runtime.h>

namespace windlass::worker::cuda {

// x and y are (T, H), weight is (H); all device memory. One thread block per row.
[[nodiscard]] cudaError_t launch_rms_norm(const float* x, const float* weight, float* y, int tokens, int hidden, float eps,
                                          cudaStream_t stream);

}  // namespace windlass::worker::cuda
