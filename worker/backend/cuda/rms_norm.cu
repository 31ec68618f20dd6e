// One block per row: each thread sums its share of squares, warps reduce by shuffles, the first warp reduces the warps.
#include "worker/backend/cuda/rms_norm.cuh"

namespace windlass::worker::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  return value;
}

// x, y: (T, H), one row a block; weight: (H)
__global__ void rms_norm_kernel(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y,
                                int hidden, float eps) {
  __shared__ float partial[kWarps];
  const float* row = x + static_cast<long long>(blockIdx.x) * hidden;
  float* out = y + static_cast<long long>(blockIdx.x) * hidden;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < hidden; i += kThreads) squares += row[i] * row[i];
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = squares;
  __syncthreads();
  // Every warp sums the eight partials for itself: no second barrier, no broadcast.
  const float total = warp_sum(threadIdx.x % 32 < kWarps ? partial[threadIdx.x % 32] : 0.0F);
  const float scale = rsqrtf(total / static_cast<float>(hidden) + eps);
  for (int i = static_cast<int>(threadIdx.x); i < hidden; i += kThreads) out[i] = row[i] * scale * weight[i];
}

}  // namespace

cudaError_t launch_rms_norm(const float* x, const float* weight, float* y, int tokens, int hidden, float eps,
                            cudaStream_t stream) {
  rms_norm_kernel<<<static_cast<unsigned>(tokens), kThreads, 0, stream>>>(x, weight, y, hidden, eps);
  return cudaGetLastError();
}

}  // namespace windlass::worker::cuda
