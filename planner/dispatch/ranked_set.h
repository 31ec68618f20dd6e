// RankedSet is a set of integers 0..n-1 that returns its r-th smallest element in O(log n), for uniform random draws.
//
// A Fenwick tree of counts. Elements are ordered, so a draw depends only on the set and not on its history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace windlass::dispatch {

class RankedSet {
 public:
  explicit RankedSet(std::size_t size = 0);  // empty, for the elements 0..size-1

  void set(std::size_t element, bool present);  // REQUIRES: element < size
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::size_t at(std::size_t rank) const;  // REQUIRES: rank < size()

 private:
  std::vector<bool> present_;
  std::vector<std::uint32_t> sums_;  // sums_[i]: how many of the elements (i - lowest bit of i) .. i-1 are present
  std::size_t count_ = 0;
};

}  // namespace windlass::dispatch
