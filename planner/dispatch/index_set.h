// IndexSet: a set of integers 0..n-1 that finds its smallest element, or the smallest from a given one, in O(log_64 n).
//
// A bitset with a bit above each word that says whether the word is empty, and so on up to a single word: three levels for
// 10,000 elements, a few kilobytes that stay in the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace windlass::dispatch {

class IndexSet {
 public:
  explicit IndexSet(std::size_t size = 0);  // empty, for the elements 0..size-1

  void insert(std::size_t element);  // REQUIRES: element < size; may be in it already
  void erase(std::size_t element);   // REQUIRES: element < size; may be missing

  [[nodiscard]] std::optional<std::size_t> first() const;
  [[nodiscard]] std::optional<std::size_t> first_from(std::size_t element) const;  // the smallest >= element

 private:
  [[nodiscard]] std::size_t first_below(std::size_t level, std::size_t bit) const;

  std::vector<std::vector<std::uint64_t>> levels_;  // from the elements up to the one word
};

}  // namespace windlass::dispatch
