// Tournament keeps the best of n keys (the first one on a tie) while single keys change: O(log n) per change, O(1) to read.
//
// It is a complete binary tree: leaves are the keys, and inner nodes name the better of their two children. Before(a, b) means
// that a is strictly better than b.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace windlass::dispatch {

template <class Key, class Before>
class Tournament {
 public:
  explicit Tournament(std::size_t size = 0)
      : leaves_(std::bit_ceil(std::max<std::size_t>(size, 1))), keys_(size), winners_(2 * leaves_, kNone) {}

  // REQUIRES: index < size. An index without a key does not take part.
  void set(std::size_t index, const std::optional<Key>& key) {
    assert(index < keys_.size());
    const auto self = static_cast<std::uint32_t>(index);
    if (key) keys_[index] = *key;
    std::size_t node = leaves_ + index;
    winners_[node] = key ? self : kNone;
    while (node > 1) {
      node /= 2;
      const std::uint32_t left = winners_[2 * node];
      const std::uint32_t right = winners_[2 * node + 1];
      const bool right_wins = left == kNone || (right != kNone && Before{}(keys_[right], keys_[left]));
      const std::uint32_t winner = right_wins ? right : left;
      // If this index neither won before nor wins now, nothing changes further up.
      if (winners_[node] == winner && winner != self) return;
      winners_[node] = winner;
    }
  }

  // None if no key is set.
  [[nodiscard]] std::optional<std::size_t> best() const {
    if (winners_[1] == kNone) return std::nullopt;
    return winners_[1];
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::size_t leaves_;
  std::vector<Key> keys_;
  std::vector<std::uint32_t> winners_;  // winner of node i; its children are 2 i and 2 i + 1, and leaves begin at leaves_
};

}  // namespace windlass::dispatch
