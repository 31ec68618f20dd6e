// Compiles all kernels for BF16 with nvcc.
#include "worker/backend/cuda/kernels/kernel_set.cuh"

namespace windlass::worker::cuda {

const Kernels& bf16_kernels() {
  static const KernelSet<Bf16> kernels;
  return kernels;
}

}  // namespace windlass::worker::cuda
