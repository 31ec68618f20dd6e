// The emulated device; see emulated_device.h. Fresh memory is filled with 0xFF (NaN), because a device guarantees nothing.
#include "worker/backend/cuda/emulation/emulated_device.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include <cblas.h>
#include <fmt/core.h>

#include "worker/backend/cuda/emulation/emulated_kernels.h"
#include "worker/backend/cuda/emulation/queue.h"

namespace windlass::worker::cuda::emulation {
namespace {

std::vector<float> as_floats(const void* from, std::int64_t count, Precision precision) {
  std::vector<float> floats(static_cast<std::size_t>(count));
  if (precision == Precision::kFp32) {
    std::memcpy(floats.data(), from, floats.size() * sizeof(float));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t bits = static_cast<const Bf16*>(from)[i].bits;
      floats[static_cast<std::size_t>(i)] = __uint_as_float(bits << 16U);
    }
  }
  return floats;
}

// e4m3: a 4-bit exponent and a 3-bit mantissa; the largest code is NaN.
std::vector<float> from_fp8(const void* from, std::int64_t count) {
  std::vector<float> floats(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const int code = static_cast<const std::uint8_t*>(from)[i];
    const int exponent = code >> 3 & 0xF;
    const int mantissa = code & 7;
    const float magnitude = (code & 0x7F) == 0x7F ? std::numeric_limits<float>::quiet_NaN()
                            : exponent == 0       ? std::ldexp(static_cast<float>(mantissa), -9)
                                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    floats[static_cast<std::size_t>(i)] = code < 0x80 ? magnitude : -magnitude;
  }
  return floats;
}

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const DeviceOptions& options)
      : options_(options), compute_(options.schedule, options.broken), transfer_(options.schedule, options.broken) {}

  [[nodiscard]] std::string name() const override { return "emulated device"; }
  [[nodiscard]] int multiprocessors() const override { return options_.multiprocessors; }
  [[nodiscard]] Precision precision() const override { return options_.precision; }
  [[nodiscard]] bool multiplies_fp8() const override { return options_.fp8; }
  [[nodiscard]] Result<DeviceMemory> memory() const override {
    const std::lock_guard lock(mutex_);
    return DeviceMemory{options_.memory_bytes - used_, options_.memory_bytes};
  }

  [[nodiscard]] Result<void*> allocate(std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (used_ + bytes > options_.memory_bytes)
      return Error{ErrorCode::kResourceExhausted, fmt::format("no memory for {} bytes", bytes)};
    // Aligned like device memory, and exactly this large, for the address sanitizer.
    void* memory = ::operator new(static_cast<std::size_t>(bytes), kAlignment);
    std::memset(memory, 0xFF, static_cast<std::size_t>(bytes));
    sizes_[memory] = bytes;
    used_ += bytes;
    return memory;
  }
  void release(void* memory) override {
    const std::lock_guard lock(mutex_);
    used_ -= sizes_.at(memory);
    sizes_.erase(memory);
    ::operator delete(memory, kAlignment);
  }
  [[nodiscard]] Result<void*> allocate_pinned(std::int64_t bytes) override {
    void* memory = ::operator new(static_cast<std::size_t>(bytes), kAlignment);
    std::memset(memory, 0xFF, static_cast<std::size_t>(bytes));
    return memory;
  }
  void release_pinned(void* memory) override { ::operator delete(memory, kAlignment); }

  void upload(Stream stream, void* to, const void* from_pinned, std::int64_t bytes) override {
    copy(stream, to, from_pinned, bytes);
  }
  void download(Stream stream, void* to_pinned, const void* from, std::int64_t bytes) override {
    copy(stream, to_pinned, from, bytes);
  }
  void clear(Stream stream, void* memory, std::int64_t bytes) override {
    queue(stream).put([=] {
      std::memset(memory, 0, static_cast<std::size_t>(bytes));
      return Result<void>();
    });
  }
  void gemm(const Gemm& work) override {
    compute_.put([this, work] {
      multiply(work);
      return Result<void>();
    });
  }
  [[nodiscard]] const Kernels& kernels() const override { return emulated_kernels(options_.precision); }
  [[nodiscard]] StreamHandle handle(Stream stream) const override { return &queue(stream); }

  void all_reduce(float* values, std::int64_t count) override {
    if (options_.network == nullptr) return;
    compute_.put([this, values, count] {
      std::copy_n(values, count, options_.network->addend(count).begin());
      std::fill_n(values, count, 0.0F);
      return options_.network->add_sum(values, count);
    });
  }
  [[nodiscard]] std::optional<Error> fault() const override { return std::nullopt; }

  [[nodiscard]] Result<void> wait(Stream stream) override { return queue(stream).outcome(); }
  void set_mark(int mark) override { assert(mark >= 0 && mark < kMarks); }
  [[nodiscard]] Result<void> wait_for_mark(int) override { return compute_.outcome(); }

  void begin_capture() override { compute_.begin_capture(); }
  [[nodiscard]] Result<int> end_capture() override {
    graphs_.push_back(compute_.end_capture());
    return static_cast<int>(graphs_.size()) - 1;
  }
  void replay(int graph) override {
    for (const Queue::Work& work : graphs_[static_cast<std::size_t>(graph)]) compute_.put(work);
  }

 private:
  static constexpr std::align_val_t kAlignment{256};

  [[nodiscard]] Queue& queue(Stream stream) const { return stream == Stream::kCompute ? compute_ : transfer_; }
  void copy(Stream stream, void* to, const void* from, std::int64_t bytes) {
    queue(stream).put([=] {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      return Result<void>();
    });
  }
  void multiply(const Gemm& work) const {
    const auto floats = [&](const void* from, std::int64_t count) {
      return work.fp8 ? from_fp8(from, count) : as_floats(from, count, options_.precision);
    };
    const std::vector<float> x = floats(work.x, work.rows * work.in);
    const std::vector<float> w = floats(work.w, work.out * work.in);
    std::vector<float> y(static_cast<std::size_t>(work.rows * work.out));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(work.rows), static_cast<int>(work.out),
                static_cast<int>(work.in), 1.0F, x.data(), static_cast<int>(work.in), w.data(), static_cast<int>(work.in), 0.0F,
                y.data(), static_cast<int>(work.out));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / work.out;
      const std::int64_t at = row * work.stride() + static_cast<std::int64_t>(i) % work.out;
      if (work.float_out || options_.precision == Precision::kFp32) {
        float& to = static_cast<float*>(work.y)[at];
        to = work.accumulate ? to + y[i] : y[i];
      } else {
        static_cast<Bf16*>(work.y)[at].bits = bf16_bits(y[i]);
      }
    }
  }

  const DeviceOptions options_;
  mutable Queue compute_;
  mutable Queue transfer_;
  std::vector<std::vector<Queue::Work>> graphs_;
  mutable std::mutex mutex_;
  std::map<void*, std::int64_t> sizes_;
  std::int64_t used_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(const DeviceOptions& options) { return std::make_unique<EmulatedDevice>(options); }

}  // namespace windlass::worker::cuda::emulation
