// IndexSet is a set of integers 0..n-1 that finds its smallest element, or the smallest one from a given value, in O(log_64 n).
//
// It is a bitset in which every 64-bit word has a bit one level up that says whether the word is non-empty, up to a single
// word. 10,000 elements need three levels and a few kilobytes, which stay in the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace windlass::dispatch {

class IndexSet {
 public:
  explicit IndexSet(std::size_t size = 0);  // empty, for the elements 0..size-1

  void insert(std::size_t element);  // REQUIRES: element < size; no effect if present
  void erase(std::size_t element);   // REQUIRES: element < size; no effect if missing

  [[nodiscard]] std::optional<std::size_t> first() const;
  [[nodiscard]] std::optional<std::size_t> first_from(std::size_t element) const;  // the smallest >= element

 private:
  [[nodiscard]] std::size_t first_below(std::size_t level, std::size_t bit) const;

  std::vector<std::vector<std::uint64_t>> levels_;  // from the elements up to the single word
};

}  // namespace windlass::dispatch
