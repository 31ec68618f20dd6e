// The kernels for the emulation; their streams are Queues.
#pragma once

#include "worker/backend/cuda/device.h"

namespace windlass::worker::cuda::emulation {

[[nodiscard]] const Kernels& emulated_kernels(Precision precision);

}  // namespace windlass::worker::cuda::emulation
