// A set of integers that finds its r-th smallest element; see ranked_set.h.
#include "planner/dispatch/ranked_set.h"

#include <bit>
#include <cassert>

namespace windlass::dispatch {

RankedSet::RankedSet(std::size_t size) : present_(size, false), sums_(size + 1, 0) {}

void RankedSet::set(std::size_t element, bool present) {
  assert(element < present_.size());
  if (present_[element] == present) return;
  present_[element] = present;
  const std::uint32_t change = present ? 1U : ~0U;  // unsigned arithmetic: adding ~0 subtracts one
  for (std::size_t i = element + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += change;
  count_ += present ? 1 : -std::size_t{1};
}

std::size_t RankedSet::at(std::size_t rank) const {
  assert(rank < count_);
  std::size_t before = 0;  // number of elements known to come before the one looked for
  for (std::size_t step = std::bit_floor(present_.size()); step > 0; step /= 2) {
    if (before + step < sums_.size() && sums_[before + step] <= rank) {
      before += step;
      rank -= sums_[before];
    }
  }
  return before;
}

}  // namespace windlass::dispatch
