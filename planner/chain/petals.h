// PETALS as published: block placement and routing, the baseline of both papers (Borzunov et al. 2023; Sun et al., Section
// 4.1).
//
// Servers join one by one. Each takes m_j = floor((M_j - reserved) / (s_m + its cache share per block)) blocks at the window
// whose sorted block throughputs are lexicographically smallest, and adds its own throughput there. Requests take the path with
// the least weight; a server with too little free cache costs a fixed penalty.
//
// The papers state no constants. Ours, each a parameter:
// - reserved: 2 GiB, which PETALS' server keeps for BLOOM-176B (it scales with the embedding dimension, 14336 there).
// - cache share: one session of 2048 tokens per block. With the effective memories of Section 4.2 (79.13 and 8.2 GB) this gives
//   the published 53 and 4 blocks. PETALS' source reserves 4096 tokens, which gives 53 and 4 for 86.13 and 9.1 GB, the memories
//   used in parts of the authors' simulator; with 2048-token caches in s_c that is cache_sessions_per_block = 2.
// - throughput of a server: 1 / (block_s (m_j + 1) / 2), as in PETALS' source: a request enters at a uniformly random block of
//   the server. Its other limit, the network, is far higher in the published measurements and is omitted.
// - weight of a link, in seconds per token as in PETALS' source: (communication_weight communication_s + block_s m_ij) /
//   output_tokens, plus 10 s if fewer slots are free than the server has blocks (all of them, because the source assumes the
//   worst case).
//
// Servers do not move later: PETALS' rebalancing is not modelled. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/chain/placement.h"
#include "planner/chain/routes.h"

namespace windlass::chain {

struct PetalsOptions {
  double reserved_gb = 2.147483648;
  double cache_sessions_per_block = 1;  // the fixed cache share, in units of the instance's cache_gb
  bool only_cache_share = false;        // true: the share is the whole cache; false: memory left by the blocks is cache too
  std::vector<int> join_order;          // indices of servers; the others join last, in list order
  std::vector<int> blocks;              // per server, instead of PETALS' own number; empty: its own

  double communication_weight = 1;
  double output_tokens = 20;  // the instance's times are divided by this; 1 if they are per token
  double no_room_penalty_s = 10;
};

// m_j, within [0, L].
[[nodiscard]] int petals_blocks(const Instance& instance, int server, const PetalsOptions& options);

// For the ablations in the papers: join_order = cg_bp(...).order is "optimised order", blocks = those of cg_bp(...).placement
// is "optimised number". REQUIRES: join_order without repetition; blocks empty or one number per server, at most L.
[[nodiscard]] Placement petals_placement(const Instance& instance, const PetalsOptions& options);

// Cache slots of every server: all that memory leaves, or floor(share * blocks) with only_cache_share (never more than memory
// leaves). If `blocks` is given there is no share, so it is all that memory leaves.
[[nodiscard]] std::vector<long> petals_cache_slots(const Instance& instance, const Placement& placement,
                                                   const PetalsOptions& options);

class PetalsRouting {
 public:
  // Keeps a reference to the graph.
  PetalsRouting(const Instance& instance, const RouteGraph& graph, const PetalsOptions& options);

  // Chooses by the slots currently free on every server. None if there is no route. The cost of the route is its weight.
  [[nodiscard]] std::optional<Route> route(std::span<const long> free_slots) const;

 private:
  const RouteGraph& graph_;
  double no_room_penalty_s_;
  std::vector<double> weights_s_;  // by link, without penalties
};

}  // namespace windlass::chain
