// Device memory, cuBLAS and NCCL behind the plain functions of ops.h.
#include "worker/backend/cuda/ops.h"

#include <cstddef>
#include <utility>

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <fmt/core.h>
#include <nccl.h>

#include "worker/backend/cuda/rms_norm.cuh"

namespace windlass::worker::cuda {
namespace {

Error failed(const char* what, cudaError_t status) {
  return Error{ErrorCode::kInternal, fmt::format("{}: {}", what, cudaGetErrorString(status))};
}

// An array of floats on the device.
class DeviceArray {
 public:
  static Result<DeviceArray> make(std::int64_t count) {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(count) * sizeof(float));
    if (status != cudaSuccess) return failed("cudaMalloc", status);
    return DeviceArray(static_cast<float*>(memory), count);
  }
  static Result<DeviceArray> copy_of(const float* host, std::int64_t count) {
    WINDLASS_ASSIGN_OR_RETURN(DeviceArray array, make(count));
    const cudaError_t status = cudaMemcpy(array.memory_, host, array.bytes(), cudaMemcpyHostToDevice);
    if (status != cudaSuccess) return failed("copy to the device", status);
    return array;
  }
  DeviceArray(DeviceArray&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), count_(other.count_) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(memory_); }

  [[nodiscard]] float* get() const { return memory_; }
  [[nodiscard]] Result<void> copy_to(float* host) const {
    const cudaError_t status = cudaMemcpy(host, memory_, bytes(), cudaMemcpyDeviceToHost);
    if (status != cudaSuccess) return failed("copy from the device", status);
    return {};
  }

 private:
  DeviceArray(float* memory, std::int64_t count) : memory_(memory), count_(count) {}
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(float); }
  float* memory_;
  std::int64_t count_;
};

class Blas {
 public:
  Blas() : status_(cublasCreate(&handle_)) {}
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() {
    if (status_ == CUBLAS_STATUS_SUCCESS) cublasDestroy(handle_);
  }
  [[nodiscard]] cublasStatus_t status() const { return status_; }
  [[nodiscard]] cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
  cublasStatus_t status_;
};

}  // namespace

bool compiled() { return true; }

Result<void> usable() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess)
    return Error{ErrorCode::kUnavailable, fmt::format("no usable device: {}", cudaGetErrorString(status))};
  if (devices == 0) return Error{ErrorCode::kUnavailable, "no usable device: none found"};
  return {};
}

std::string describe() {
  int nccl = 0;
  const bool nccl_known = ncclGetVersion(&nccl) == ncclSuccess;
  const auto device = usable();
  return fmt::format("CUDA {}.{}, NCCL {}, {}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                     nccl_known ? fmt::format("{}.{}.{}", nccl / 10000, nccl % 10000 / 100, nccl % 100) : "unknown",
                     device.ok() ? "device found" : device.error().message);
}

Result<void> matmul(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  WINDLASS_RETURN_IF_ERROR(usable());
  const Blas blas;
  if (blas.status() != CUBLAS_STATUS_SUCCESS) {
    return Error{ErrorCode::kInternal, fmt::format("cublasCreate: {}", cublasGetStatusString(blas.status()))};
  }
  WINDLASS_ASSIGN_OR_RETURN(const DeviceArray device_x, DeviceArray::copy_of(x, tokens * in));
  WINDLASS_ASSIGN_OR_RETURN(const DeviceArray device_w, DeviceArray::copy_of(w, out * in));
  WINDLASS_ASSIGN_OR_RETURN(const DeviceArray device_y, DeviceArray::make(tokens * out));
  const float one = 1;
  const float zero = 0;
  // cuBLAS is column-major, where our row-major y (T, out) reads as y^T (out, T) = w (out, in) * x^T (in, T).
  const cublasStatus_t status = cublasSgemm(
      blas.get(), CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(out), static_cast<int>(tokens), static_cast<int>(in), &one,
      device_w.get(), static_cast<int>(in), device_x.get(), static_cast<int>(in), &zero, device_y.get(), static_cast<int>(out));
  if (status != CUBLAS_STATUS_SUCCESS)
    return Error{ErrorCode::kInternal, fmt::format("cublasSgemm: {}", cublasGetStatusString(status))};
  return device_y.copy_to(y);
}

Result<void> rms_norm(const float* x, const float* weight, float* y, std::int64_t tokens, std::int64_t hidden, float eps) {
  WINDLASS_RETURN_IF_ERROR(usable());
  WINDLASS_ASSIGN_OR_RETURN(const DeviceArray device_x, DeviceArray::copy_of(x, tokens * hidden));
  WINDLASS_ASSIGN_OR_RETURN(const DeviceArray device_weight, DeviceArray::copy_of(weight, hidden));
  WINDLASS_ASSIGN_OR_RETURN(const DeviceArray device_y, DeviceArray::make(tokens * hidden));
  const cudaError_t status = launch_rms_norm(device_x.get(), device_weight.get(), device_y.get(), static_cast<int>(tokens),
                                             static_cast<int>(hidden), eps, nullptr);
  if (status != cudaSuccess) return failed("rms_norm", status);
  return device_y.copy_to(y);
}

}  // namespace windlass::worker::cuda
