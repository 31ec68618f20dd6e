// CG-BP decides which blocks of the model each server holds: conservative greedy block placement (Sun et al., "Optimizing
// Resource Allocation for Geographically-Distributed Inference by Large Language Models", Alg. 1 Steps 1-2, Eq. 14-15, Theorem
// 3.5).
//
// Each server gets as many blocks as it can hold and still have room for the caches of |R| requests on all of them. So |R|
// requests cannot run out of memory, however they are routed. Servers are placed in the order of their amortised time per
// block. While some block is unserved, a server takes the range with the largest total amortised time; after that, the range
// with the least capacity.
//
// By the proof of Lemma 3.3 the first rule means "the next blocks in order, and the last blocks for the server that completes
// the model", if the time of the paper's dummy server exceeds all others. The code uses that form; tests compare it with the
// original rule. Pure; O(J L log L).
//
// Times may be per token or per request: communication_s stands for t*_j and block_s for tau_j.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/chain/placement.h"

namespace windlass::chain {

struct ConservativePlacement {
  Placement placement;                 // of every server
  std::vector<int> order;              // the placed servers, in the order of placement
  int covering_servers = 0;            // K: the first K of them hold all blocks; 0 if not all blocks are placed
  std::optional<double> time_bound_s;  // Theorem 3.5: upper bound of a request's time on its shortest path; none if K is 0
};

// t~_j (Eq. 14): block_s + communication_s / blocks. REQUIRES: blocks >= 1.
[[nodiscard]] double amortised_time_s(const Server& server, double communication_s, int blocks);

// f_j (Eq. 15): how many requests a server with `blocks` blocks serves at the same time, evaluated in doubles exactly as
// written. REQUIRES: blocks >= 1.
[[nodiscard]] double session_capacity(const Instance& instance, int server, int blocks);

// `communication_s` is t*_j: each server's largest communication time with any client; empty: use the servers' own times. Ties
// go to the server listed first and to the smallest first block. Servers without room for a block are not placed. REQUIRES:
// design_load >= 1; communication_s is empty or has one value per server.
[[nodiscard]] ConservativePlacement cg_bp(const Instance& instance, int design_load,
                                          std::span<const double> communication_s = {});

}  // namespace windlass::chain
