// Compiles all kernels for FP32 with nvcc.
#include "worker/backend/cuda/kernels/kernel_set.cuh"

namespace windlass::worker::cuda {

const Kernels& fp32_kernels() {
  static const KernelSet<float> kernels;
  return kernels;
}

}  // namespace windlass::worker::cuda
