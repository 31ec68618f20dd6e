// Device: memory, streams and matrix products for the CUDA backend. Implementations: a GPU (cuda_device.cc), and the emulation
// in which tests run the whole backend without a GPU (emulation/emulated_device.h).
//
// Work is asynchronous: it is queued on a stream and runs in the stream's order; a failure is the error of the next wait() or
// wait_for_mark(). There are two streams, one for forward() and one for concurrent copies of keys and values. One thread at a
// time uses a stream; different threads may use the two streams.
//
// Devices of several ranks compute sums over their own network (NCCL), set up when they are opened. A rank that does not
// respond is not detected here but in collective/rank_watch.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "planner/base/result.h"
#include "worker/backend/cuda/kernels.h"

namespace windlass::worker::cuda {

// Type of weights, activations and the KV cache; sums are always FP32.
enum class Precision { kBf16, kFp32 };
[[nodiscard]] constexpr std::int64_t bytes_of(Precision precision) { return precision == Precision::kBf16 ? 2 : 4; }
[[nodiscard]] constexpr const char* to_string(Precision precision) { return precision == Precision::kBf16 ? "bf16" : "fp32"; }

struct DeviceMemory {
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
};

// y (rows, out) = x (rows, in) * w (out, in)^T, or y += that. x and w have the precision's type, or FP8 (e4m3) if the device
// supports it; y has the precision's type, or float. All three start at multiples of 256 bytes, as allocate() returns them.
struct Gemm {
  const void* x = nullptr;
  const void* w = nullptr;
  void* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool float_out = false;
  bool accumulate = false;    // requires float_out
  bool fp8 = false;           // requires float_out, and `in` and `out` to be multiples of 16
  std::int64_t y_stride = 0;  // distance between rows of y, of which `out` numbers are written; 0: out

  [[nodiscard]] std::int64_t stride() const { return y_stride > 0 ? y_stride : out; }
};

class Device {
 public:
  enum class Stream { kCompute, kTransfer };

  virtual ~Device() = default;

  // "NVIDIA H200"
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual int multiprocessors() const = 0;
  [[nodiscard]] virtual Precision precision() const = 0;
  [[nodiscard]] virtual bool multiplies_fp8() const = 0;
  [[nodiscard]] virtual Result<DeviceMemory> memory() const = 0;

  // Device memory, and pinned host memory that the device can access directly.
  [[nodiscard]] virtual Result<void*> allocate(std::int64_t bytes) = 0;
  virtual void release(void* memory) = 0;
  [[nodiscard]] virtual Result<void*> allocate_pinned(std::int64_t bytes) = 0;
  virtual void release_pinned(void* memory) = 0;

  // REQUIRES: the host side is pinned and stays unchanged until the stream has passed this operation.
  virtual void upload(Stream stream, void* to, const void* from_pinned, std::int64_t bytes) = 0;
  virtual void download(Stream stream, void* to_pinned, const void* from, std::int64_t bytes) = 0;
  virtual void clear(Stream stream, void* memory, std::int64_t bytes) = 0;
  virtual void gemm(const Gemm& work) = 0;  // on the compute stream
  [[nodiscard]] virtual const Kernels& kernels() const = 0;
  [[nodiscard]] virtual StreamHandle handle(Stream stream) const = 0;

  // values = the sum of all ranks' values, the same bits on all; on the compute stream. Ranks must queue the same sums in the
  // same order, and all inside or all outside of graphs. Does nothing with one rank.
  virtual void all_reduce(float* values, std::int64_t count) = 0;
  // A fault between the devices that wait() would never report; any thread.
  [[nodiscard]] virtual std::optional<Error> fault() const = 0;

  // Waits for all of the stream's work. After an error the device is unusable.
  [[nodiscard]] virtual Result<void> wait(Stream stream) = 0;
  // set_mark() marks the current position in the compute stream; wait_for_mark() waits until the stream has reached it. Any
  // thread may wait, and may then start work that depends on what came before the mark. REQUIRES: 0 <= mark < kMarks.
  static constexpr int kMarks = 1024;
  virtual void set_mark(int mark) = 0;
  [[nodiscard]] virtual Result<void> wait_for_mark(int mark) = 0;

  // Work queued on the compute stream after begin_capture() is recorded instead of run, and runs with each replay(): kernels,
  // products and sums with exactly the recorded arguments. Graphs live as long as the device.
  virtual void begin_capture() = 0;
  [[nodiscard]] virtual Result<int> end_capture() = 0;
  virtual void replay(int graph) = 0;
};

// Device memory, released with this object.
template <bool pinned>
class Memory {
 public:
  Memory() = default;
  static Result<Memory> make(Device& device, std::int64_t bytes) {
    Memory memory;
    memory.device_ = &device;
    memory.bytes_ = bytes > 0 ? bytes : 1;
    WINDLASS_ASSIGN_OR_RETURN(memory.start_, pinned ? device.allocate_pinned(memory.bytes_) : device.allocate(memory.bytes_));
    return memory;
  }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory() {
    if (start_ == nullptr) return;
    if (pinned) {
      device_->release_pinned(start_);
    } else {
      device_->release(start_);
    }
  }

  [[nodiscard]] void* get() const { return start_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(start_);
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  void swap(Memory& other) {
    std::swap(device_, other.device_);
    std::swap(start_, other.start_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  void* start_ = nullptr;
  std::int64_t bytes_ = 0;
};
using OnDevice = Memory<false>;
using Pinned = Memory<true>;

}  // namespace windlass::worker::cuda
