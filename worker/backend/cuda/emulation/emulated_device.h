// An emulated Device, for tests: memory is the host's, products use OpenBLAS, and kernels run as described in execution.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "worker/backend/cuda/device.h"
#include "worker/backend/cuda/emulation/execution.h"
#include "worker/collective/rank_group.h"

namespace windlass::worker::cuda::emulation {

struct DeviceOptions {
  Precision precision = Precision::kFp32;
  Schedule schedule = {};
  int multiprocessors = 4;
  std::int64_t memory_bytes = 1LL << 32U;     // allocations beyond this fail
  bool fp8 = true;                            // whether it supports FP8 products
  const std::atomic<bool>* broken = nullptr;  // once true, all work fails, like on a GPU that has fallen off its bus
  RankGroup* network = nullptr;               // the group in which ranks' devices compute sums; null: only one rank
};

[[nodiscard]] std::unique_ptr<Device> make_emulated_device(const DeviceOptions& options);

}  // namespace windlass::worker::cuda::emulation
