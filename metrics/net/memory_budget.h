// MemoryBudget: how much many parts may hold together. One thread. It outlives its parts, which may stand in coroutines that
// are never resumed: therefore it is shared.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace windlass::net {

class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] std::size_t held_bytes() const { return held_bytes_; }
  [[nodiscard]] std::size_t max_bytes() const { return max_bytes_; }

  class Part {
   public:
    explicit Part(std::shared_ptr<MemoryBudget> all) : all_(std::move(all)) {}
    ~Part() { all_->held_bytes_ -= bytes_; }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    // False, and nothing changed: it does not fit. Shrinking always does.
    [[nodiscard]] bool resize(std::size_t bytes) {
      if (bytes > bytes_ && all_->held_bytes_ + (bytes - bytes_) > all_->max_bytes_) return false;
      all_->held_bytes_ += bytes - bytes_;
      bytes_ = bytes;
      return true;
    }

   private:
    std::shared_ptr<MemoryBudget> all_;
    std::size_t bytes_ = 0;
  };

 private:
  const std::size_t max_bytes_;
  std::size_t held_bytes_ = 0;
};

}  // namespace windlass::net
