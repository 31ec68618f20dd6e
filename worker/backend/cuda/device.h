// Device: the memory, streams and matrix products that the CUDA backend computes with. One implementation is a GPU
// (cuda_device.cc), one the emulation in which tests run the whole backend without a GPU (emulation/emulated_device.h).
//
// Work is asynchronous: it is put on a stream, runs in that stream's order, and what fails is the error of the next wait() or
// wait_for_mark(). There are two streams, one for forward() and one for the copies of keys and values that run beside it. Calls
// about one stream come from one thread at a time; those about the other may come from another.
//
// Devices of several ranks add up sums with each other, by a network of their own (NCCL's) that they are opened with. One that
// is waited for in vain is not noticed here: collective/rank_watch.h is for that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "planner/base/result.h"
#include "worker/backend/cuda/kernels.h"

namespace windlass::worker::cuda {

// Of weights, activations and the KV cache; sums are FP32 in both.
enum class Precision { kBf16, kFp32 };
[[nodiscard]] constexpr std::int64_t bytes_of(Precision precision) { return precision == Precision::kBf16 ? 2 : 4; }
[[nodiscard]] constexpr const char* to_string(Precision precision) { return precision == Precision::kBf16 ? "bf16" : "fp32"; }

struct DeviceMemory {
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
};

// y (rows, out) = x (rows, in) * w (out, in)^T, or y += that. x and w are of the precision, or FP8 (e4m3) where the device
// multiplies it; y is of the precision, or float. All three begin as allocate() gives memory, at multiples of 256 bytes.
struct Gemm {
  const void* x = nullptr;
  const void* w = nullptr;
  void* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool float_out = false;
  bool accumulate = false;    // with float_out alone
  bool fp8 = false;           // with float_out alone, and `in` and `out` multiples of 16
  std::int64_t y_stride = 0;  // from a row of y to the next, of which `out` are written; 0: out

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

  // Memory of the device, and of the host in pages that it can read and write by itself.
  [[nodiscard]] virtual Result<void*> allocate(std::int64_t bytes) = 0;
  virtual void release(void* memory) = 0;
  [[nodiscard]] virtual Result<void*> allocate_pinned(std::int64_t bytes) = 0;
  virtual void release_pinned(void* memory) = 0;

  // REQUIRES: the host's side is pinned and stays as it is until the stream has come past.
  virtual void upload(Stream stream, void* to, const void* from_pinned, std::int64_t bytes) = 0;
  virtual void download(Stream stream, void* to_pinned, const void* from, std::int64_t bytes) = 0;
  virtual void clear(Stream stream, void* memory, std::int64_t bytes) = 0;
  virtual void gemm(const Gemm& work) = 0;  // on the compute stream
  [[nodiscard]] virtual const Kernels& kernels() const = 0;
  [[nodiscard]] virtual StreamHandle handle(Stream stream) const = 0;

  // values = the sum of what all ranks' devices have there, the same bits at all; on the compute stream. Ranks put the same
  // sums on their streams in the same order, in graphs or not, each alike. With one rank alone there is nothing to do.
  virtual void all_reduce(float* values, std::int64_t count) = 0;
  // What went wrong between the devices and would never be heard of by wait(); any thread.
  [[nodiscard]] virtual std::optional<Error> fault() const = 0;

  // Until all of the stream's work is done. After an error the device is of no more use.
  [[nodiscard]] virtual Result<void> wait(Stream stream) = 0;
  // Marks the compute stream's place now, and waits until it has come to there. Any thread may wait, then anything may be
  // started that needs what was before the mark. REQUIRES: 0 <= mark < kMarks.
  static constexpr int kMarks = 1024;
  virtual void set_mark(int mark) = 0;
  [[nodiscard]] virtual Result<void> wait_for_mark(int mark) = 0;

  // What is put on the compute stream from begin_capture() on is not run but kept, and runs with each replay(): kernels,
  // products and sums with the very arguments that they had. Graphs live as long as the device.
  virtual void begin_capture() = 0;
  [[nodiscard]] virtual Result<int> end_capture() = 0;
  virtual void replay(int graph) = 0;
};

// Memory of a device that is released with this.
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
