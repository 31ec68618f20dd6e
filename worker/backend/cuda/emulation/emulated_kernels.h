// The CUDA kernels as the emulated device runs them, on the CPU. Their stream handles point to Queues (queue.h).
#pragma once

#include "worker/backend/cuda/device.h"

namespace windlass::worker::cuda::emulation {

[[nodiscard]] const Kernels& emulated_kernels(Precision precision);

}  // namespace windlass::worker::cuda::emulation
