// An emulated Device: memory is the host's, products are OpenBLAS's, and kernels run as execution.h says. For tests.
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
  std::int64_t memory_bytes = 1LL << 32U;     // allocations beyond them fail
  bool fp8 = true;                            // whether it multiplies it
  const std::atomic<bool>* broken = nullptr;  // once true, all work fails, as a GPU's does that has fallen off its bus
  RankGroup* network = nullptr;               // by which ranks' devices add up sums; null: there is one rank alone
};

[[nodiscard]] std::unique_ptr<Device> make_emulated_device(const DeviceOptions& options);

}  // namespace windlass::worker::cuda::emulation
