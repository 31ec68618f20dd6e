// Finds the lowest window without sorting any. Two sorted windows of the same width first differ at the smallest value that one
// contains more often, and that window is the lower one. So the candidate slides along, and the code keeps the counts of its
// values minus those of the best window so far.
#include "planner/chain/lowest_window.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace windlass::chain {
namespace {

constexpr std::size_t kBitsPerWord = 64;

// Counts by rank, and which of them are not 0.
class Differences {
 public:
  explicit Differences(std::size_t ranks) : counts_(ranks, 0), words_((ranks + kBitsPerWord - 1) / kBitsPerWord, 0) {}

  void add(std::size_t rank, int change) {
    counts_[rank] += change;
    const std::uint64_t bit = std::uint64_t{1} << (rank % kBitsPerWord);
    std::uint64_t& word = words_[rank / kBitsPerWord];
    word = counts_[rank] != 0 ? word | bit : word & ~bit;
  }

  // The count at the smallest rank with a count other than 0; 0 if there is none.
  [[nodiscard]] int first() const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] != 0) return counts_[i * kBitsPerWord + static_cast<std::size_t>(std::countr_zero(words_[i]))];
    }
    return 0;
  }

  void clear() {
    std::fill(counts_.begin(), counts_.end(), 0);
    std::fill(words_.begin(), words_.end(), 0);
  }

 private:
  std::vector<int> counts_;
  std::vector<std::uint64_t> words_;
};

}  // namespace

int lowest_window(std::span<const double> values, int width) {
  const auto count = values.size();
  const auto window = static_cast<std::size_t>(width);
  assert(width >= 1 && window <= count);
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<std::size_t> ranks(count);
  for (std::size_t i = 0; i < count; ++i) {
    ranks[i] = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), values[i]) - sorted.begin());
  }
  std::size_t best = 0;
  Differences candidate_over_best(sorted.size());
  for (std::size_t start = 1; start + window <= count; ++start) {
    candidate_over_best.add(ranks[start - 1], -1);
    candidate_over_best.add(ranks[start + window - 1], +1);
    if (candidate_over_best.first() > 0) {
      best = start;
      candidate_over_best.clear();
    }
  }
  return static_cast<int>(best);
}

}  // namespace windlass::chain
