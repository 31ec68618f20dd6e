// Compiles the kernels in kernels/ with the C++ compiler, for the emulation.
#include "worker/backend/cuda/emulation/emulated_kernels.h"

#include "worker/backend/cuda/emulation/queue.h"
#include "worker/backend/cuda/kernels/execution.cuh"

namespace windlass::worker::cuda {
namespace {

template <typename Work>
void launch(StreamHandle stream, void (*kernel)(Work), dim3 grid, int threads, std::size_t shared_bytes, const Work& work) {
  auto& queue = *static_cast<emulation::Queue*>(stream);
  queue.put([=, schedule = queue.schedule()] {
    return emulation::run_grid(grid, threads, shared_bytes, schedule, [&] { kernel(work); });
  });
}

}  // namespace
}  // namespace windlass::worker::cuda

#include "worker/backend/cuda/kernels/kernel_set.cuh"

namespace windlass::worker::cuda::emulation {

const Kernels& emulated_kernels(Precision precision) {
  static const KernelSet<Bf16> bf16;
  static const KernelSet<float> fp32;
  if (precision == Precision::kBf16) return bf16;
  return fp32;
}

}  // namespace windlass::worker::cuda::emulation
