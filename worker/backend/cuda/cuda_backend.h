// CudaBackend: the forward pass on a Device, with weights and the paged KV cache in its memory.
//
// Weights, activations and cache are of the device's precision; the residual stream, sums and logits are FP32. One forward()
// uploads one description of its batch, starts all kernels without waiting for any, and waits once, for what it reads back.
// Batches of single tokens (decode) run as CUDA graphs from the second time on that there are so many.
//
// One of several ranks computes its slice of every layer on a device of its own, which adds up sums with the others'; all ranks
// must run the same chunks, watched (with a LayerDone) or not alike. A layer is told of when all ranks have it in their caches.
// vocab_size() is the model's, kv_shape() the rank's; forward() gives the whole rows to rank 0, the others get none.
//
// Owned by the engine's loop, used from its thread; read_kv() and write_kv() from any, on a stream of their own. After an error
// of the device, or of another rank, every forward() returns one: the worker should end.
#pragma once

#include <functional>
#include <memory>

#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device.h"
#include "worker/backend/cuda/device_weights.h"
#include "worker/backend/cuda/memory_need.h"
#include "worker/model/config.h"

namespace windlass::worker::cuda {

// `weights` gives the rank's slices; `config` is the whole model's. options.group outlives the backend.
// lost: called when the device has failed, on the thread of forward(), before that returns the error; of several ranks also
// when one is lost, or is waited for in vain, then on a thread of the backend's own, and forward() may never return. May be
// empty. Errors: of check_cuda_model(), of the source, and kResourceExhausted when something does not fit into the device's
// memory.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda_backend(const ModelConfig& config, const WeightSource& weights,
                                                                 std::unique_ptr<Device> device,
                                                                 const CudaBackendOptions& options,
                                                                 std::function<void(const Error&)> lost = nullptr);

}  // namespace windlass::worker::cuda
