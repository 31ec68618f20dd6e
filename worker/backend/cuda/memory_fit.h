// Suggests what would fit a device when the requested settings do not. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "worker/backend/cuda/device.h"
#include "worker/backend/cuda/memory_need.h"
#include "worker/model/config.h"

namespace windlass::worker::cuda {

// Flags of the worker that would fit, one suggestion of each kind: a smaller cache or shorter context, a smaller weight format,
// more GPUs like this one; or a note that none of them helps. `cache_asked`: options' kv_blocks are required, not only enough
// for one context.
[[nodiscard]] std::string what_would_fit(const ModelConfig& config, const CudaBackendOptions& options, Precision precision,
                                         int multiprocessors, std::int64_t budget_bytes, bool cache_asked);

}  // namespace windlass::worker::cuda
