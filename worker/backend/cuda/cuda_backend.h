// CudaBackend: the forward pass on a Device, with weights and the paged KV cache in its memory.
//
// Weights, activations and cache have the device's precision; the residual stream, sums and logits are FP32. forward() uploads
// one description of its batch, launches all kernels without waiting, and waits once for the results. Batches of single tokens
// (decode) run as CUDA graphs from the second batch of a size on.
//
// As one of several ranks, it computes its slice of every layer on its own device and sums with the other devices. All ranks
// must run the same chunks, and all with or all without a LayerDone callback. A layer is reported when all ranks have it in
// their caches. vocab_size() is the model's, kv_shape() the rank's; forward() returns whole rows at rank 0 and nothing at the
// others.
//
// Owned by the engine's loop and used from its thread; read_kv() and write_kv() from any thread, on a stream of their own.
// After an error of the device or of another rank, every forward() fails: the worker should exit.
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

// `weights` provides the rank's slices; `config` is the whole model's. options.group outlives the backend. `lost`: called when
// the device has failed, on the thread of forward(), before it returns the error; with several ranks, also when a rank is lost
// or does not respond, on a thread of the backend's own, and forward() may then never return. May be empty. Errors: those of
// check_cuda_model() and of the source; kResourceExhausted if something does not fit in the device's memory.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda_backend(const ModelConfig& config, const WeightSource& weights,
                                                                 std::unique_ptr<Device> device,
                                                                 const CudaBackendOptions& options,
                                                                 std::function<void(const Error&)> lost = nullptr);

}  // namespace windlass::worker::cuda
