// The GPU as a Device, using the CUDA runtime and cuBLASLt. In a build without CUDA the same functions report that.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "planner/base/result.h"
#include "worker/backend/cuda/device.h"

namespace windlass::worker::cuda {

// Whether this build contains CUDA code.
[[nodiscard]] bool compiled();

// The number of devices visible to this process, at least one; the first is new enough. Error: kUnavailable with the reason:
// not compiled, no driver, no device, or one that is too old.
[[nodiscard]] Result<int> usable_devices();

// For --version and messages: "CUDA 13.0, NCCL 2.28.9, 2 usable devices", or "..., no usable device: ...".
[[nodiscard]] std::string describe();

// The group of devices that compute sums together (Device::all_reduce).
struct DeviceRank {
  using NetworkId = std::array<std::byte, 128>;
  int rank = 0;
  int ranks = 1;
  NetworkId network = {};  // rank 0's new_network_id()
};
[[nodiscard]] Result<DeviceRank::NetworkId> new_network_id();

// Opens the visible device with the rank's number. With several ranks, returns once all have opened theirs and completed a
// first sum. Errors: those of usable_devices() or of connecting the devices.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(Precision precision, const DeviceRank& rank = {});

}  // namespace windlass::worker::cuda
