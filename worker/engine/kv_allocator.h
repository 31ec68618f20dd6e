// KvAllocator: hands out the blocks of the KV cache. Which block a sequence gets has no meaning, so they come from a stack.
//
// Owned by the engine; one thread.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

namespace windlass::worker {

class KvAllocator {
 public:
  explicit KvAllocator(std::int64_t blocks) : total_(blocks) {
    free_.reserve(static_cast<std::size_t>(blocks));
    for (std::int64_t id = blocks - 1; id >= 0; --id) free_.push_back(static_cast<std::int32_t>(id));
  }

  [[nodiscard]] std::int64_t total() const { return total_; }
  [[nodiscard]] std::int64_t available() const { return static_cast<std::int64_t>(free_.size()); }
  [[nodiscard]] std::int64_t used() const { return total_ - available(); }

  // REQUIRES: available() > 0.
  [[nodiscard]] std::int32_t take() {
    assert(!free_.empty());
    const std::int32_t id = free_.back();
    free_.pop_back();
    return id;
  }

  // Gives all of `blocks` back. REQUIRES: they were taken and not given back since.
  void give_back(const std::vector<std::int32_t>& blocks) {
    free_.insert(free_.end(), blocks.begin(), blocks.end());
    assert(available() <= total_);
  }

 private:
  std::int64_t total_;
  std::vector<std::int32_t> free_;
};

}  // namespace windlass::worker
