// The GPU as a Device, by the CUDA runtime and cuBLASLt. A build without a CUDA toolkit has the same functions, which say so.
#pragma once

#include <memory>
#include <string>

#include "planner/base/result.h"
#include "worker/backend/cuda/device.h"

namespace windlass::worker::cuda {

// Whether this build holds CUDA code at all.
[[nodiscard]] bool compiled();

// OK when a device is there that can run it; else kUnavailable with the reason: not compiled, no driver, no device, one that is
// too old.
[[nodiscard]] Result<void> usable();

// For --version and messages: "CUDA 13.0, NCCL 2.28.9, no usable device: ...".
[[nodiscard]] std::string describe();

// Device 0. Error: as usable().
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(Precision precision);

}  // namespace windlass::worker::cuda
