// The CUDA operations that exist: a matrix product through cuBLAS and an RMSNorm kernel of our own, each with its twin in
// backend/cpu/ops.h, against which tests/unit/worker compares them.
//
// Arguments are host arrays; each call copies in, runs on device 0 and copies out, which suits a parity test and nothing
// faster. A build without a CUDA toolkit has the same functions, which say so. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "planner/base/result.h"

namespace windlass::worker::cuda {

// Whether this build holds CUDA code at all.
[[nodiscard]] bool compiled();

// OK when a device is there that can run it; else kUnavailable with the reason: not compiled, no driver, no device.
[[nodiscard]] Result<void> usable();

// For --version and messages: "CUDA 13.0, NCCL 2.28.9, no usable device: ...".
[[nodiscard]] std::string describe();

// y (T, out) = x (T, in) * w (out, in)^T.
[[nodiscard]] Result<void> matmul(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in,
                                  std::int64_t out);

// y (T, H) = x / rms(x) * weight, row by row.
[[nodiscard]] Result<void> rms_norm(const float* x, const float* weight, float* y, std::int64_t tokens, std::int64_t hidden,
                                    float eps);

}  // namespace windlass::worker::cuda
