// Small random instances for the tests of BPRR and PETALS. Sizes and times are multiples of 1/8, so that sums are exact and
// results may be compared with a brute force by ==.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/base/rng.h"
#include "planner/chain/instance.h"
#include "planner/chain/placement.h"

namespace windlass::chain {

inline double eighths(Rng& rng, int low, int high) { return static_cast<double>(rng.integer(low, high)) / 8; }

inline Instance random_instance(Rng& rng, int max_servers, int max_blocks) {
  Instance instance;
  instance.blocks = static_cast<int>(rng.integer(1, max_blocks));
  instance.block_gb = eighths(rng, 4, 16);
  instance.cache_gb = eighths(rng, 1, 4);
  instance.arrival_rate_per_s = eighths(rng, 1, 8);
  const auto servers = rng.integer(1, max_servers);
  for (int j = 0; j < servers; ++j) {
    instance.servers.push_back(
        {"s" + std::to_string(j), eighths(rng, 8, 160), eighths(rng, 0, 16), eighths(rng, 1, 16), 1, {}});
  }
  return instance;
}

// Any ranges, including empty ones.
inline Placement random_placement(const Instance& instance, Rng& rng) {
  Placement placement;
  for (std::size_t j = 0; j < instance.servers.size(); ++j) {
    const int blocks = static_cast<int>(rng.integer(0, instance.blocks));
    const int first = blocks == 0 ? 1 : static_cast<int>(rng.integer(1, instance.blocks - blocks + 1));
    placement.push_back({first, blocks});
  }
  return placement;
}

// Every path through the placement, by Lemma 3.1: the next server must hold the next block.
inline void for_each_path(const Instance& instance, const Placement& placement,
                          const std::function<void(const std::vector<int>& servers, const std::vector<int>& blocks)>& visit) {
  std::vector<int> servers, blocks;
  const std::function<void(int)> extend = [&](int next_block) {
    if (next_block > instance.blocks) {
      visit(servers, blocks);
      return;
    }
    for (std::size_t j = 0; j < placement.size(); ++j) {
      if (!placement[j].holds(next_block)) continue;
      servers.push_back(static_cast<int>(j));
      blocks.push_back(placement[j].last() - next_block + 1);
      extend(placement[j].last() + 1);
      servers.pop_back();
      blocks.pop_back();
    }
  };
  extend(1);
}

// The window whose sorted values are lexicographically smallest, found by sorting every window; from 0.
inline int lowest_window_by_sorting(const std::vector<double>& values, int width) {
  int best = -1;
  std::vector<double> best_values;
  for (int start = 0; start + width <= static_cast<int>(values.size()); ++start) {
    std::vector<double> window(values.begin() + start, values.begin() + start + width);
    std::sort(window.begin(), window.end());
    if (best < 0 || window < best_values) {
      best = start;
      best_values = window;
    }
  }
  return best;
}

// 2 A100 and 7 MIG slices of Sun et al., Section 4.2, with BLOOM-176B; requests of `tokens` tokens in total.
inline Instance bloom_instance(double a100_gb, double mig_gb, double tokens) {
  Instance instance;
  instance.blocks = 70;
  instance.block_gb = 2466437120 * 4.25 / 8 * 1.01 / 1e9;
  instance.cache_gb = 4 * 14336 * tokens / 1e9;
  for (int j = 0; j < 2; ++j) instance.servers.push_back({"a100", a100_gb, 0.1, 0.0032197, 1, {}});
  for (int j = 0; j < 7; ++j) instance.servers.push_back({"mig", mig_gb, 0.1, 0.0162488, 1, {}});
  return instance;
}

}  // namespace windlass::chain
