// GBP-CR decides which blocks of the model each server holds: greedy block placement with cache reservation (Sun, He, Hou 2026,
// Alg. 1, Eq. 8-12).
//
// Every server gets as many blocks as leave room for c concurrent requests on each. Servers join disjoint chains in the order
// of their amortised time per block, until the scaled total rate of the chains reaches lambda / (rho c). Optimal for Eq. 10 if
// all memories are equal (Theorem 3.4). Pure; O(J log J).
#pragma once

#include <vector>

#include "planner/chain/placement.h"

namespace windlass::chain {

// m_j(c) of Eq. 8: min(floor(M_j / (s_m + s_c c)), L), evaluated in doubles exactly as written.
[[nodiscard]] int blocks_for_capacity(const Instance& instance, double memory_gb, int capacity);

// t_j(c) of Eq. 9, for m_j(c) = blocks.
[[nodiscard]] double full_service_time_s(const Server& server, int blocks);

struct DisjointChains {
  Placement placement;                   // of every server; blocks 0: not placed, and unused by GCA
  std::vector<std::vector<int>> chains;  // complete chains, in the order of construction
  double scaled_rate_per_s = 0;          // sum over complete chains of 1 / sum_j t_j(c)
  bool reaches_rate = false;             // scaled_rate_per_s >= the required rate
};

// The scaled rate at which Alg. 1 stops: lambda / (rho c).
[[nodiscard]] double required_scaled_rate_per_s(const Instance& instance, int capacity);

// If servers run out, those of an unfinished chain stay placed; servers after the stop rule do not. Ties go to the server
// listed first. REQUIRES: capacity >= 1.
[[nodiscard]] DisjointChains gbp_cr(const Instance& instance, int capacity);

// The same with any required scaled rate instead of lambda / (rho c); infinity places every server.
[[nodiscard]] DisjointChains gbp_cr(const Instance& instance, int capacity, double required_scaled_rate_per_s);

// The algorithm with reusable memory, for a search that runs it for many c. Borrows the instance.
class GreedyPlacement {
 public:
  explicit GreedyPlacement(const Instance& instance);

  // Lines 1-3: blocks and order of the servers for this c. False if no server's number of blocks changed since the last call.
  bool set_capacity(int capacity);
  // Lines 4-12.
  void place(double required_scaled_rate_per_s);
  // The smallest c above that of the last set_capacity() for which gbp_cr() may place differently, or `most` + 1.
  [[nodiscard]] int next_change(int most, bool stops = true) const;
  [[nodiscard]] std::size_t memories() const { return classes_.size(); }  // different ones

  [[nodiscard]] int blocks(int server) const { return classes_[class_of_[static_cast<std::size_t>(server)]].blocks; }
  // For the last place(): the servers that hold blocks, in the order of placement, and their ranges.
  [[nodiscard]] std::size_t placed() const { return placed_; }
  [[nodiscard]] int server(std::size_t at) const { return order_[at].server; }
  [[nodiscard]] BlockRange range(std::size_t at) const { return ranges_[at]; }
  [[nodiscard]] double amortised_s(std::size_t at) const { return order_[at].amortised_s; }  // of one block
  // Complete chains: chain l ends before position chain_end(l).
  [[nodiscard]] const std::vector<std::size_t>& chain_ends() const { return chain_ends_; }
  [[nodiscard]] double scaled_rate_per_s() const { return rates_per_s_.empty() ? 0 : rates_per_s_.back(); }
  [[nodiscard]] bool reaches_rate() const { return reaches_rate_; }

 private:
  struct Candidate {
    double amortised_s;  // t~_j(c) of Eq. 12
    int server;
    int blocks;
    double time_s;  // t_j(c)

    bool operator<(const Candidate& other) const {
      return amortised_s < other.amortised_s || (amortised_s == other.amortised_s && server < other.server);
    }
  };

  struct MemoryClass {
    double memory_gb;
    int blocks;          // m_j(c); -1 before the first set_capacity()
    double next_change;  // the floor is the same for every smaller c
  };

  void merge_moved();

  const Instance& instance_;
  std::vector<MemoryClass> classes_;   // the floor is computed once for all servers with the same memory
  std::vector<std::size_t> class_of_;  // by server
  std::vector<Candidate> order_;
  std::vector<Candidate> moved_;  // scratch
  std::vector<BlockRange> ranges_;
  std::vector<std::size_t> chain_ends_;
  std::vector<double> rates_per_s_;  // scaled rate of the first chain, the first two, ...
  std::size_t placed_ = 0;
  double next_floor_ = kNever;  // the first c at which some number of blocks changes
  int capacity_ = 0;
  bool reaches_rate_ = false;
};

}  // namespace windlass::chain
