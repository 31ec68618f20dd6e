// MemoryBudget: limits the total memory of many parts, such as request bodies. Thread-safe: a part may be released on any
// thread. Each part shares ownership of the budget, because a part may live in a coroutine that is never resumed.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace windlass::net {

class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] std::size_t held_bytes() const { return held_bytes_; }
  [[nodiscard]] std::size_t max_bytes() const { return max_bytes_; }

  // A share of the budget, with one owner at a time.
  class Part {
   public:
    Part() = default;  // holds nothing, belongs to no budget
    explicit Part(std::shared_ptr<MemoryBudget> all) : all_(std::move(all)) {}
    ~Part() {
      if (all_ != nullptr) all_->held_bytes_ -= bytes_;
    }
    Part(Part&& other) noexcept : all_(std::move(other.all_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(all_, other.all_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }

    // Returns false and changes nothing if it does not fit. Shrinking always works. REQUIRES: it belongs to a budget.
    [[nodiscard]] bool resize(std::size_t bytes) {
      std::size_t held = all_->held_bytes_;
      do {
        if (bytes > bytes_ && held + (bytes - bytes_) > all_->max_bytes_) return false;
      } while (!all_->held_bytes_.compare_exchange_weak(held, held + bytes - bytes_));
      bytes_ = bytes;
      return true;
    }

   private:
    std::shared_ptr<MemoryBudget> all_;
    std::size_t bytes_ = 0;
  };

 private:
  const std::size_t max_bytes_;
  std::atomic<std::size_t> held_bytes_ = 0;
};

}  // namespace windlass::net
