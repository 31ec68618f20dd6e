// A set of integers that finds its smallest element; see index_set.h.
#include "planner/dispatch/index_set.h"

#include <bit>
#include <cassert>

namespace windlass::dispatch {
namespace {

constexpr std::size_t kBits = 64;

std::uint64_t mask_of(std::size_t bit) { return std::uint64_t{1} << (bit % kBits); }

}  // namespace

IndexSet::IndexSet(std::size_t size) {
  do {
    size = (size + kBits - 1) / kBits;
    levels_.emplace_back(size, 0);
  } while (size > 1);
}

void IndexSet::insert(std::size_t element) {
  assert(element / kBits < levels_.front().size());
  for (auto& words : levels_) {
    std::uint64_t& word = words[element / kBits];
    const bool was_empty = word == 0;
    word |= mask_of(element);
    if (!was_empty) return;
    element /= kBits;
  }
}

void IndexSet::erase(std::size_t element) {
  assert(element / kBits < levels_.front().size());
  for (auto& words : levels_) {
    std::uint64_t& word = words[element / kBits];
    if ((word & mask_of(element)) == 0) return;
    word &= ~mask_of(element);
    if (word != 0) return;
    element /= kBits;
  }
}

// The smallest element below this bit, which is set.
std::size_t IndexSet::first_below(std::size_t level, std::size_t bit) const {
  while (level > 0) {
    --level;
    bit = bit * kBits + static_cast<std::size_t>(std::countr_zero(levels_[level][bit]));
  }
  return bit;
}

std::optional<std::size_t> IndexSet::first() const {
  const auto& top = levels_.back();
  if (top.empty() || top.front() == 0) return std::nullopt;
  return first_below(levels_.size() - 1, static_cast<std::size_t>(std::countr_zero(top.front())));
}

std::optional<std::size_t> IndexSet::first_from(std::size_t element) const {
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    const auto& words = levels_[level];
    if (element / kBits >= words.size()) return std::nullopt;
    const std::uint64_t rest = words[element / kBits] & ~(mask_of(element) - 1);
    if (rest != 0) return first_below(level, element / kBits * kBits + static_cast<std::size_t>(std::countr_zero(rest)));
    element = element / kBits + 1;  // continue with the next word
  }
  return std::nullopt;
}

}  // namespace windlass::dispatch
