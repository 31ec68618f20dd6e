// What would fit a device where what is asked for does not. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "worker/backend/cuda/device.h"
#include "worker/backend/cuda/memory_need.h"
#include "worker/model/config.h"

namespace windlass::worker::cuda {

// Flags of the worker that would fit, of each kind one: a smaller cache or a shorter context, plainer weights, more GPUs like
// this one; or that none of them does. `cache_asked`: options' kv_blocks must be there, not only as many as one context takes.
[[nodiscard]] std::string what_would_fit(const ModelConfig& config, const CudaBackendOptions& options, Precision precision,
                                         int multiprocessors, std::int64_t budget_bytes, bool cache_asked);

}  // namespace windlass::worker::cuda
