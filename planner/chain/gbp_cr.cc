// Places blocks by GBP-CR; see gbp_cr.h.
#include "planner/chain/gbp_cr.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace windlass::chain {

int blocks_for_capacity(const Instance& instance, double memory_gb, int capacity) {
  const double fit = std::floor(memory_gb / (instance.block_gb + instance.cache_gb * capacity));
  return static_cast<int>(std::min(fit, static_cast<double>(instance.blocks)));
}

double full_service_time_s(const Server& server, int blocks) { return server.communication_s + server.block_s * blocks; }

double required_scaled_rate_per_s(const Instance& instance, int capacity) {
  return instance.arrival_rate_per_s / (instance.max_load * capacity);
}

GreedyPlacement::GreedyPlacement(const Instance& instance) : instance_(instance) {
  std::vector<double> memories_gb;
  for (const Server& server : instance.servers) memories_gb.push_back(server.memory_gb);
  std::sort(memories_gb.begin(), memories_gb.end());
  memories_gb.erase(std::unique(memories_gb.begin(), memories_gb.end()), memories_gb.end());
  for (const double memory_gb : memories_gb) classes_.push_back(MemoryClass{memory_gb, -1, 0});
  for (const Server& server : instance.servers) {
    const auto at = std::lower_bound(memories_gb.begin(), memories_gb.end(), server.memory_gb);
    class_of_.push_back(static_cast<std::size_t>(at - memories_gb.begin()));
  }
  order_.reserve(instance.servers.size());
  ranges_.reserve(instance.servers.size());
}

bool GreedyPlacement::set_capacity(int capacity) {
  assert(capacity >= 1);
  const bool rising = capacity >= capacity_;
  capacity_ = capacity;
  bool changed = false;
  bool refill = order_.empty();
  next_floor_ = kNever;
  for (MemoryClass& of : classes_) {
    if (!rising || capacity >= of.next_change) {
      const int blocks = blocks_for_capacity(instance_, of.memory_gb, capacity);
      // The quotient tells where the floor changes, up to rounding. One c too early is harmless; one too late would be wrong.
      const double holds_until = blocks > 0 ? (of.memory_gb / blocks - instance_.block_gb) / instance_.cache_gb : kNever;
      of.next_change = std::max(std::floor(holds_until * (1 - 1e-12)) + 1, capacity + 1.0);
      changed = changed || blocks != of.blocks;
      refill = refill || (blocks > 0 && of.blocks <= 0);
      of.blocks = blocks;
    }
    next_floor_ = std::min(next_floor_, of.next_change);
  }
  if (!changed) return false;
  if (refill) {
    order_.clear();
    for (std::size_t j = 0; j < class_of_.size(); ++j) order_.push_back(Candidate{0, static_cast<int>(j), -1, 0});
  }
  // Few servers change their blocks from one c to the next: the others keep their order.
  moved_.clear();
  std::size_t kept = 0;
  for (const Candidate& candidate : order_) {
    const int blocks = this->blocks(candidate.server);
    if (blocks == candidate.blocks) {
      order_[kept++] = candidate;
    } else if (blocks > 0) {  // without blocks, never placed
      const double time_s = full_service_time_s(instance_.servers[static_cast<std::size_t>(candidate.server)], blocks);
      moved_.push_back(Candidate{time_s / blocks, candidate.server, blocks, time_s});
    }
  }
  order_.resize(kept);
  merge_moved();
  return true;
}

// Sorts the moved servers into the order, from its end.
void GreedyPlacement::merge_moved() {
  std::sort(moved_.begin(), moved_.end());
  std::size_t kept = order_.size();
  order_.resize(kept + moved_.size());
  for (std::size_t to = order_.size(); !moved_.empty(); --to) {
    const bool moved_is_later = kept == 0 || order_[kept - 1] < moved_.back();
    order_[to - 1] = moved_is_later ? moved_.back() : order_[--kept];
    if (moved_is_later) moved_.pop_back();
  }
}

void GreedyPlacement::place(double required_scaled_rate_per_s) {
  ranges_.clear();
  chain_ends_.clear();
  rates_per_s_.clear();
  placed_ = 0;
  reaches_rate_ = false;
  const int all = instance_.blocks;
  int next = 1;
  double chain_time_s = 0;
  for (const Candidate& candidate : order_) {
    ranges_.push_back(BlockRange{std::min(next, all - candidate.blocks + 1), candidate.blocks});
    ++placed_;
    chain_time_s += candidate.time_s;
    next = std::min(next + candidate.blocks - 1, all) + 1;
    if (next <= all) continue;
    rates_per_s_.push_back(scaled_rate_per_s() + 1 / chain_time_s);
    chain_ends_.push_back(placed_);
    if (rates_per_s_.back() >= required_scaled_rate_per_s) {
      reaches_rate_ = true;
      break;
    }
    next = 1;
    chain_time_s = 0;
  }
}

int GreedyPlacement::next_change(int most, bool stops) const {
  double next = std::min(most + 1.0, next_floor_);
  // The stop rule applies one chain earlier, or applies at all, once lambda / (rho c) has fallen to the rate of that chain.
  const std::size_t chains = rates_per_s_.size() - (reaches_rate_ ? 1 : 0);
  if (stops && !rates_per_s_.empty() && chains > 0) {
    const double fires_at = instance_.arrival_rate_per_s / (instance_.max_load * rates_per_s_[chains - 1]);
    next = std::min(next, std::ceil(fires_at * (1 - 1e-12)));  // rounded down for the same reason
  }
  return static_cast<int>(std::clamp(next, capacity_ + 1.0, most + 1.0));
}

DisjointChains gbp_cr(const Instance& instance, int capacity) {
  return gbp_cr(instance, capacity, required_scaled_rate_per_s(instance, capacity));
}

DisjointChains gbp_cr(const Instance& instance, int capacity, double required_scaled_rate_per_s) {
  GreedyPlacement greedy(instance);
  greedy.set_capacity(capacity);
  greedy.place(required_scaled_rate_per_s);

  DisjointChains result;
  result.placement.resize(instance.servers.size());
  for (std::size_t i = 0; i < greedy.placed(); ++i) {
    result.placement[static_cast<std::size_t>(greedy.server(i))] = greedy.range(i);
  }
  std::size_t begin = 0;
  for (const std::size_t end : greedy.chain_ends()) {
    std::vector<int>& chain = result.chains.emplace_back();
    for (; begin < end; ++begin) chain.push_back(greedy.server(begin));
  }
  result.scaled_rate_per_s = greedy.scaled_rate_per_s();
  result.reaches_rate = greedy.reaches_rate();
  return result;
}

}  // namespace windlass::chain
