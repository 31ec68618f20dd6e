// Implements Device: streams, memory and graphs with the CUDA runtime, products with cuBLASLt, sums over the ranks with NCCL.
//
// NCCL's communicator blocks and is never destroyed: both would wait for the other ranks, one of which may be gone. RankWatch
// ends a process that waits in vain, and the communicator ends with its process.
#include "worker/backend/cuda/cuda_device.h"

#include <array>
#include <cassert>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/core.h>
#include <nccl.h>

#include "worker/backend/cuda/memory_need.h"

namespace windlass::worker::cuda {
namespace {

// First compute capability with BF16 products and conversions; the oldest that cuda.cmake compiles for.
constexpr int kOldestMajor = 8;
// First compute capability, times ten, with FP8 products on tensor cores.
constexpr int kFirstWithFp8 = 89;
constexpr std::size_t kWorkspaceBytes = 32U << 20U;

Error failed(const char* what, cudaError_t status) {
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::kResourceExhausted : ErrorCode::kInternal;
  return Error{code, fmt::format("{}: {}", what, cudaGetErrorString(status))};
}
Error failed(const char* what, cublasStatus_t status) {
  return Error{ErrorCode::kInternal, fmt::format("{}: {}", what, cublasLtGetStatusString(status))};
}
Error failed(const char* what, ncclResult_t status) {
  const char* more = ncclGetLastError(nullptr);
  const bool said = more != nullptr && *more != '\0';
  return Error{ErrorCode::kInternal,
               fmt::format("{}: {}{}{}", what, ncclGetErrorString(status), said ? ": " : "", said ? more : "")};
}

#define WINDLASS_RETURN_IF_CUDA_ERROR(what, call)                                      \
  do {                                                                                 \
    if (const auto windlass_status = (call); static_cast<int>(windlass_status) != 0) { \
      return failed(what, windlass_status);                                            \
    }                                                                                  \
  } while (false)

// Checks that cuda.cmake compiles for this device.
Result<void> check_new_enough(int device) {
  int major = 0;
  WINDLASS_RETURN_IF_CUDA_ERROR("cudaDeviceGetAttribute",
                                cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major >= kOldestMajor) return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("no usable device: compute capability of device {}: must be at least {} (got {})", device,
                           kOldestMajor, major)};
}

// A product of one shape: its cuBLASLt descriptors and the algorithm chosen.
class Product {
 public:
  // rows, in, out, stride, float_out, accumulate, fp8
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, bool, bool>;
  static Shape shape_of(const Gemm& work) {
    return {work.rows, work.in, work.out, work.stride(), work.float_out, work.accumulate, work.fp8};
  }

  Product() = default;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
    for (cublasLtMatrixLayout_t layout : {w_, x_, y_}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }

  // cuBLASLt is column-major: our row-major y (rows, out) is computed as y^T (out, rows) = w (out, in) * x^T (in, rows).
  Result<void> prepare(cublasLtHandle_t blas, Precision precision, const Gemm& work) {
    const cudaDataType_t plain = precision == Precision::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
    // FP8 requires the layout that we already have: both operands along `in`. Its scales are 1; ours are applied afterwards.
    const cudaDataType_t in_type = work.fp8 ? CUDA_R_8F_E4M3 : plain;
    const cudaDataType_t out_type = work.float_out ? CUDA_R_32F : plain;
    // Pedantic: no TF32, which has a 10-bit mantissa.
    const bool pedantic = precision == Precision::kFp32 && !work.fp8;
    const cublasComputeType_t compute = pedantic ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto rows = static_cast<std::uint64_t>(work.rows);
    const auto in = static_cast<std::uint64_t>(work.in);
    const auto out = static_cast<std::uint64_t>(work.out);
    WINDLASS_RETURN_IF_CUDA_ERROR("cublasLtMatmulDescCreate", cublasLtMatmulDescCreate(&operation_, compute, CUDA_R_32F));
    WINDLASS_RETURN_IF_CUDA_ERROR(
        "cublasLtMatmulDescSetAttribute",
        cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    WINDLASS_RETURN_IF_CUDA_ERROR("cublasLtMatrixLayoutCreate", cublasLtMatrixLayoutCreate(&w_, in_type, in, out, work.in));
    WINDLASS_RETURN_IF_CUDA_ERROR("cublasLtMatrixLayoutCreate", cublasLtMatrixLayoutCreate(&x_, in_type, in, rows, work.in));
    WINDLASS_RETURN_IF_CUDA_ERROR("cublasLtMatrixLayoutCreate",
                                  cublasLtMatrixLayoutCreate(&y_, out_type, out, rows, work.stride()));
    cublasLtMatmulPreference_t preference = nullptr;
    WINDLASS_RETURN_IF_CUDA_ERROR("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &kWorkspaceBytes, sizeof(kWorkspaceBytes));
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulAlgoGetHeuristic(blas, operation_, w_, x_, y_, y_, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && count == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status != CUBLAS_STATUS_SUCCESS) {
      return failed(fmt::format("a product of ({}, {}) by ({}, {})", work.rows, work.in, work.out, work.in).c_str(), status);
    }
    algorithm_ = found.algo;
    return {};
  }

  [[nodiscard]] cublasStatus_t start(cublasLtHandle_t blas, const Gemm& work, void* workspace, cudaStream_t stream) const {
    const float one = 1;
    const float beta = work.accumulate ? 1 : 0;
    return cublasLtMatmul(blas, operation_, &one, work.w, w_, work.x, x_, &beta, work.y, y_, work.y, y_, &algorithm_, workspace,
                          kWorkspaceBytes, stream);
  }

 private:
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t y_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

class CudaDevice final : public Device {
 public:
  CudaDevice(Precision precision, const DeviceRank& rank) : precision_(precision), rank_(rank) {}
  ~CudaDevice() override {
    bind();
    for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
    products_.clear();
    if (blas_ != nullptr) cublasLtDestroy(blas_);
    cudaFree(workspace_);
    for (cudaEvent_t mark : marks_) {
      if (mark != nullptr) cudaEventDestroy(mark);
    }
    for (cudaStream_t stream : streams_) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  Result<void> open() {
    WINDLASS_ASSIGN_OR_RETURN(const int devices, usable_devices());
    WINDLASS_RETURN_IF_ERROR(check_devices(rank_.ranks, devices));
    WINDLASS_RETURN_IF_ERROR(check_new_enough(rank_.rank));
    WINDLASS_RETURN_IF_CUDA_ERROR("cudaSetDevice", cudaSetDevice(rank_.rank));
    WINDLASS_RETURN_IF_CUDA_ERROR("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties_, rank_.rank));
    for (cudaStream_t& stream : streams_) {
      WINDLASS_RETURN_IF_CUDA_ERROR("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    for (cudaEvent_t& mark : marks_) {
      WINDLASS_RETURN_IF_CUDA_ERROR("cudaEventCreate", cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
    }
    WINDLASS_RETURN_IF_CUDA_ERROR("cudaMalloc", cudaMalloc(&workspace_, kWorkspaceBytes));
    WINDLASS_RETURN_IF_CUDA_ERROR("cublasLtCreate", cublasLtCreate(&blas_));
    return rank_.ranks > 1 ? join() : Result<void>();
  }

  [[nodiscard]] std::string name() const override { return properties_.name; }
  [[nodiscard]] int multiprocessors() const override { return properties_.multiProcessorCount; }
  [[nodiscard]] Precision precision() const override { return precision_; }
  [[nodiscard]] bool multiplies_fp8() const override { return properties_.major * 10 + properties_.minor >= kFirstWithFp8; }
  [[nodiscard]] Result<DeviceMemory> memory() const override {
    bind();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    WINDLASS_RETURN_IF_CUDA_ERROR("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes));
    return DeviceMemory{static_cast<std::int64_t>(free_bytes), static_cast<std::int64_t>(total_bytes)};
  }

  [[nodiscard]] Result<void*> allocate(std::int64_t bytes) override {
    bind();
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    if (status == cudaSuccess) return memory;
    static_cast<void>(cudaGetLastError());  // clear the error, which has been reported and does not concern later calls
    return failed(fmt::format("{:.1f} GB of the device's memory", static_cast<double>(bytes) / 1e9).c_str(), status);
  }
  void release(void* memory) override { cudaFree(memory); }
  [[nodiscard]] Result<void*> allocate_pinned(std::int64_t bytes) override {
    bind();
    void* memory = nullptr;
    WINDLASS_RETURN_IF_CUDA_ERROR("cudaHostAlloc",
                                  cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocDefault));
    return memory;
  }
  void release_pinned(void* memory) override { cudaFreeHost(memory); }

  void upload(Stream stream, void* to, const void* from_pinned, std::int64_t bytes) override {
    note("a copy to the device",
         cudaMemcpyAsync(to, from_pinned, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, of(stream)), stream);
  }
  void download(Stream stream, void* to_pinned, const void* from, std::int64_t bytes) override {
    note("a copy from the device",
         cudaMemcpyAsync(to_pinned, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, of(stream)), stream);
  }
  void clear(Stream stream, void* memory, std::int64_t bytes) override {
    note("clearing memory", cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), of(stream)), stream);
  }
  void gemm(const Gemm& work) override {
    const auto [product, fresh] = products_.try_emplace(Product::shape_of(work));
    if (fresh) {
      const auto prepared = product->second.prepare(blas_, precision_, work);
      if (!prepared.ok()) note(prepared.error(), Stream::kCompute);
    }
    if (outcome(Stream::kCompute)) return;
    const cublasStatus_t status = product->second.start(blas_, work, workspace_, of(Stream::kCompute));
    if (status != CUBLAS_STATUS_SUCCESS) note(failed("cublasLtMatmul", status), Stream::kCompute);
  }
  [[nodiscard]] const Kernels& kernels() const override {
    return precision_ == Precision::kBf16 ? bf16_kernels() : fp32_kernels();
  }
  [[nodiscard]] StreamHandle handle(Stream stream) const override { return of(stream); }

  void all_reduce(float* values, std::int64_t count) override {
    if (network_ == nullptr) return;
    const ncclResult_t status =
        ncclAllReduce(values, values, static_cast<std::size_t>(count), ncclFloat, ncclSum, network_, of(Stream::kCompute));
    if (status != ncclSuccess) note(failed("ncclAllReduce", status), Stream::kCompute);
  }
  [[nodiscard]] std::optional<Error> fault() const override {
    if (network_ == nullptr) return std::nullopt;
    ncclResult_t found = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(network_, &found);
    if (asked != ncclSuccess) found = asked;
    if (found == ncclSuccess || found == ncclInProgress) return std::nullopt;
    return failed("the sums over the ranks' devices", found);
  }

  [[nodiscard]] Result<void> wait(Stream stream) override {
    const cudaStream_t waited_for = of(stream);
    note("a kernel's launch", cudaGetLastError(), stream);
    note("the device's work", cudaStreamSynchronize(waited_for), stream);
    if (const auto& error = outcome(stream)) return *error;
    return {};
  }
  void set_mark(int mark) override {
    assert(mark >= 0 && mark < kMarks);
    note("cudaEventRecord", cudaEventRecord(marks_[static_cast<std::size_t>(mark)], of(Stream::kCompute)), Stream::kCompute);
  }
  [[nodiscard]] Result<void> wait_for_mark(int mark) override {
    WINDLASS_RETURN_IF_CUDA_ERROR("the device's work", cudaEventSynchronize(marks_[static_cast<std::size_t>(mark)]));
    return {};
  }

  void begin_capture() override {
    // Thread-local capture: copies on the other stream, and NCCL's threads, may go on meanwhile.
    note("cudaStreamBeginCapture", cudaStreamBeginCapture(of(Stream::kCompute), cudaStreamCaptureModeThreadLocal),
         Stream::kCompute);
  }
  [[nodiscard]] Result<int> end_capture() override {
    cudaGraph_t graph = nullptr;
    WINDLASS_RETURN_IF_CUDA_ERROR("cudaStreamEndCapture", cudaStreamEndCapture(of(Stream::kCompute), &graph));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    WINDLASS_RETURN_IF_CUDA_ERROR("cudaGraphInstantiate", status);
    graphs_.push_back(executable);
    return static_cast<int>(graphs_.size()) - 1;
  }
  void replay(int graph) override {
    note("cudaGraphLaunch", cudaGraphLaunch(graphs_[static_cast<std::size_t>(graph)], of(Stream::kCompute)), Stream::kCompute);
  }

 private:
  // Makes this the current device of the calling thread.
  void bind() const {
    int current = -1;
    if (cudaGetDevice(&current) != cudaSuccess || current != rank_.rank) cudaSetDevice(rank_.rank);
  }
  // Call before queueing work on a stream or waiting for it.
  [[nodiscard]] cudaStream_t of(Stream stream) const {
    bind();
    return streams_[static_cast<std::size_t>(stream)];
  }

  // Connects the ranks' devices. Two first sums, the smallest and a large one, check the connection and make NCCL allocate its
  // memory before free memory is measured.
  Result<void> join() {
    ncclUniqueId network;
    static_assert(sizeof(network.internal) == sizeof(rank_.network));
    std::memcpy(network.internal, rank_.network.data(), sizeof(network.internal));
    WINDLASS_RETURN_IF_CUDA_ERROR("ncclCommInitRank", ncclCommInitRank(&network_, rank_.ranks, network, rank_.rank));
    clear(Stream::kCompute, workspace_, kWorkspaceBytes);
    for (const std::size_t floats : {std::size_t{1}, kWorkspaceBytes / sizeof(float)}) {
      all_reduce(static_cast<float*>(workspace_), static_cast<std::int64_t>(floats));
    }
    return wait(Stream::kCompute);
  }

  // The first error on the stream.
  [[nodiscard]] std::optional<Error>& outcome(Stream stream) { return outcomes_[static_cast<std::size_t>(stream)]; }
  void note(Error error, Stream stream) {
    if (!outcome(stream)) outcome(stream) = std::move(error);
  }
  void note(const char* what, cudaError_t status, Stream stream) {
    if (status != cudaSuccess) note(failed(what, status), stream);
  }

  const Precision precision_;
  const DeviceRank rank_;
  ncclComm_t network_ = nullptr;  // null with one rank
  cudaDeviceProp properties_ = {};
  std::array<cudaStream_t, 2> streams_ = {};
  std::array<cudaEvent_t, kMarks> marks_ = {};
  std::array<std::optional<Error>, 2> outcomes_;
  cublasLtHandle_t blas_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Product::Shape, Product> products_;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace

bool compiled() { return true; }

Result<int> usable_devices() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess)
    return Error{ErrorCode::kUnavailable, fmt::format("no usable device: {}", cudaGetErrorString(status))};
  if (devices == 0) return Error{ErrorCode::kUnavailable, "no usable device: there is none"};
  WINDLASS_RETURN_IF_ERROR(check_new_enough(0));
  return devices;
}

std::string describe() {
  int nccl = 0;
  const bool nccl_known = ncclGetVersion(&nccl) == ncclSuccess;
  const auto devices = usable_devices();
  return fmt::format(
      "CUDA {}.{}, NCCL {}, {}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
      nccl_known ? fmt::format("{}.{}.{}", nccl / 10000, nccl % 10000 / 100, nccl % 100) : "unknown",
      devices.ok() ? fmt::format("{} usable device{}", *devices, *devices == 1 ? "" : "s") : devices.error().message);
}

Result<DeviceRank::NetworkId> new_network_id() {
  ncclUniqueId made;
  WINDLASS_RETURN_IF_CUDA_ERROR("ncclGetUniqueId", ncclGetUniqueId(&made));
  DeviceRank::NetworkId id;
  static_assert(sizeof(made.internal) == sizeof(id));
  std::memcpy(id.data(), made.internal, sizeof(id));
  return id;
}

Result<std::unique_ptr<Device>> open_device(Precision precision, const DeviceRank& rank) {
  auto device = std::make_unique<CudaDevice>(precision, rank);
  WINDLASS_RETURN_IF_ERROR(device->open());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace windlass::worker::cuda
