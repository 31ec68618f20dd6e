// PETALS as published: block placement and routing, the baseline of both papers (Borzunov et al. 2023; Sun et al., Section
// 4.1).
//
// The papers call PETALS' rules heuristic and do not state them. Ours are those of its source (bigscience-workshop/petals), as
// the simulator of Sun et al. has them, too (TingyangSunJeff/LLM_inference_simulator, Petals_online.m);
// docs/algorithms/chains-petals.md says where the two differ:
// - Servers join one by one. Each takes m_j = min(L, floor((M_j - reserved) / (s_m + cache share))) blocks (server.py,
//   _choose_num_blocks) at the window whose sorted block throughputs are lexicographically smallest, the first of equal ones
//   (block_selection.py), and adds its own throughput there.
// - reserved: 2 GiB for BLOOM-176B; it scales with the embedding dimension (14336 there).
// - cache share: 4,096 tokens a block (2,048 and 8,192 in other versions of the source), and no other memory holds caches. That
//   is two sessions if cache_gb has 2,048 tokens. With the 79.14 GiB that an A100 reports it gives the published 53 blocks.
// - throughput: rate of one block / ((m_j + 1) / 2), because a request enters at a random block of the server (throughput.py).
//   The other limit there, the network, never binds with the published measurements and is omitted.
// - Routing (sequence_manager.py, _build_inference_graph): the path with the least expected time per token. A hop to a server
//   costs half a ping, 18 ms, the decode time of the blocks used and, if fewer slots are free than the server has blocks, 10 s;
//   the way back to the client costs half a ping. Servers call each other in this graph, although the papers' client relays.
//
// Servers do not move later, as in the simulator: PETALS' rebalancing is not modelled. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/chain/placement.h"
#include "planner/chain/routes.h"

namespace windlass::chain {

// Round-trip times as client and servers measure them, without overheads.
struct PetalsPings {
  std::vector<double> client_s;               // by server
  std::vector<std::vector<double>> server_s;  // by server and next server
};

struct PetalsOptions {
  double reserved_gb = 2.147483648;
  double cache_sessions_per_block = 2;  // the cache share, in units of the instance's cache_gb
  bool only_cache_share = true;         // false: memory left by the blocks is cache, too
  std::vector<int> join_order;          // indices of servers; the others join last, in list order
  std::vector<int> blocks;              // per server, instead of PETALS' own number; empty: its own

  // Rate of one block, per server and in one unit, as PETALS measures when a server joins; empty: 1 / block_s.
  std::vector<double> block_rates;

  // A block's decode time and, without pings, a hop's time are those per token if servers have token times. Otherwise those of
  // a request, divided by this.
  double output_tokens = 20;
  std::optional<PetalsPings> pings;  // none: a hop costs the server's communication time, the way back nothing
  double hop_overhead_s = 0.018;     // added to half a ping
  double no_room_penalty_s = 10;
};

// m_j, within [0, L].
[[nodiscard]] int petals_blocks(const Instance& instance, int server, const PetalsOptions& options);

// For the ablations in the papers: join_order = cg_bp(...).order is "optimised order", blocks = those of cg_bp(...).placement
// is "optimised number". REQUIRES: join_order without repetition; blocks empty or one number per server, at most L.
[[nodiscard]] Placement petals_placement(const Instance& instance, const PetalsOptions& options);

// Cache slots of every server: floor(share * blocks) with only_cache_share (never more than memory leaves), otherwise all that
// memory leaves.
[[nodiscard]] std::vector<long> petals_cache_slots(const Instance& instance, const Placement& placement,
                                                   const PetalsOptions& options);

class PetalsRouting {
 public:
  // Keeps a reference to the graph. REQUIRES: pings, if given, for every server and pair of servers.
  PetalsRouting(const Instance& instance, const RouteGraph& graph, const PetalsOptions& options);

  // Chooses by the slots currently free on every server. None if there is no route. The cost of the route is its weight. Ties
  // go to the servers listed first, at the first hop where routes differ. O(J^2).
  [[nodiscard]] std::optional<Route> route(std::span<const long> free_slots) const;

 private:
  const RouteGraph& graph_;
  double no_room_penalty_s_;
  std::vector<int> by_last_block_;           // servers with blocks, descending by their last block
  std::vector<std::vector<double>> hops_s_;  // by server and next server; the client's are the last row
  std::vector<double> way_back_s_;           // by server
  std::vector<double> block_s_;              // by server, for one token
};

}  // namespace windlass::chain
