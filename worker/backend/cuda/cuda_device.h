// The GPU as a Device, by the CUDA runtime and cuBLASLt. A build without a CUDA toolkit has the same functions, which say so.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "planner/base/result.h"
#include "worker/backend/cuda/device.h"

namespace windlass::worker::cuda {

// Whether this build holds CUDA code at all.
[[nodiscard]] bool compiled();

// How many devices this process sees, at least one; the first can run it. Else kUnavailable with the reason: not compiled, no
// driver, no device, one that is too old.
[[nodiscard]] Result<int> usable_devices();

// For --version and messages: "CUDA 13.0, NCCL 2.28.9, 2 usable devices", or "..., no usable device: ...".
[[nodiscard]] std::string describe();

// Whose devices add up sums with each other (Device::all_reduce).
struct DeviceRank {
  using NetworkId = std::array<std::byte, 128>;
  int rank = 0;
  int ranks = 1;
  NetworkId network = {};  // what rank 0 had of new_network_id()
};
[[nodiscard]] Result<DeviceRank::NetworkId> new_network_id();

// The device with the rank's number, of those that this process sees. With more ranks than one it returns once all have opened
// theirs and have added something up. Error: as usable_devices(), or of what connects the devices.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(Precision precision, const DeviceRank& rank = {});

}  // namespace windlass::worker::cuda
