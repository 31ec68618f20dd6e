// Placement: the contiguous range of blocks that every server holds, and the chains of servers that follow from it.
//
// Blocks are counted from 1 to L. A request passes servers in order, and each block is processed at the first server of the
// chain that holds it. So after blocks 1..b-1 the next server must hold block b, and it processes b..last. The next block is
// therefore the only state of a chain. Plain data; the index is that of the server in its Instance.
#pragma once

#include <vector>

#include "planner/chain/instance.h"

namespace windlass::chain {

struct BlockRange {
  int first = 1;   // a_j
  int blocks = 0;  // m_j; 0: the server holds nothing

  [[nodiscard]] int last() const { return first + blocks - 1; }
  [[nodiscard]] bool holds(int block) const { return first <= block && block <= last(); }

  bool operator==(const BlockRange&) const = default;
};

using Placement = std::vector<BlockRange>;

// A path through the placement, and the number of concurrent requests on it.
struct ServerChain {
  std::vector<int> servers;   // in the order of the path
  std::vector<int> blocks;    // m_ij: number of blocks that each of them processes; they sum to L
  int capacity = 0;           // c_k
  double service_time_s = 0;  // T_k (Eq. 2): mean time of one request

  [[nodiscard]] double service_rate_per_s() const { return 1 / service_time_s; }

  bool operator==(const ServerChain&) const = default;
};

// floor((M_j - s_m m_j) / s_c) (Eq. 3): how many one-block caches of a request fit next to the blocks; 0 if nothing is placed.
[[nodiscard]] long cache_slots(const Instance& instance, int server, int blocks);
// For every server.
[[nodiscard]] std::vector<long> cache_slots(const Instance& instance, const Placement& placement);

// T_k of Eq. 2: sum of communication_s + block_s * blocks over the servers. REQUIRES: as many blocks as servers.
[[nodiscard]] double service_time_s(const Instance& instance, const std::vector<int>& servers, const std::vector<int>& blocks);

// Whether every block is on some server. Exactly then a full chain exists.
[[nodiscard]] bool covers_all_blocks(const Instance& instance, const Placement& placement);

}  // namespace windlass::chain
