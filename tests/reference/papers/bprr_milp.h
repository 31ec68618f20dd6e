// The joint optimum of block placement and request routing (BPRR): the MILP (13) of Sun, He, La Porta et al. ("Optimizing
// Resource Allocation for Geographically-Distributed Inference by Large Language Models"), Section 3.2.2, for small cases. The
// fast algorithms are compared with it.
//
//   minimise   sum over requests r and links (i, j) of t_ij x_ij^r, t_ij = RTT_cj + tau_j m_ij           (Eq. 4, 9)
//   such that  s_m m_j + s_c sum of m_ij x_ij^r <= M_j                                                   (Eq. 5)
//              x^r is a path from the client's source to its sink                                        (Eq. 10)
//              x_ij^r = 1 only if a_j <= a_i + m_i <= a_j + m_j - 1                                      (Eq. 11, 12)
//
// where m_ij = a_j + m_j - a_i - m_i. The paper linearises the products of placement and routing with four auxiliary variables
// per link and request (B.3). They occur only in the sum m_ij x_ij^r, so one variable with the same bounds is enough here. A
// server may stay empty (m_j = 0), which the paper's m_j in [L] excludes; memory too small for one block would make (13)
// infeasible. Pure; solved by Cbc.
#pragma once

#include <optional>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/placement.h"

namespace windlass::chain {

// Requests to be routed together: all of one size, each from a client. Times are per token.
struct OfflineDemand {
  std::vector<std::vector<double>> rtt_s;  // [client][server]: per-token round trip
  std::vector<int> request_clients;        // the client of each request
};

struct RoutedPlacement {
  bool feasible = false;
  bool proved = false;  // proved optimal or infeasible; false: the node limit was reached first
  Placement placement;
  std::vector<std::vector<int>> routes;  // the servers of each request, in order
  double total_s = 0;                    // (9): sum of all requests' times per token
  double best_bound_s = 0;               // lower bound over all placements and routings
};

// A server's block_s is its time per token and block (tau_j); communication_s and the arrival rate are ignored. Error:
// kInvalidArgument if the RTTs do not match the servers or a request's client does not exist.
[[nodiscard]] Result<RoutedPlacement> optimal_placement_and_routes(const Instance& instance, const OfflineDemand& demand,
                                                                   long max_nodes = 1'000'000);

// Time per token of one route (Eq. 4 summed), for a client with these RTTs. nullopt if its servers do not hold all blocks in
// order.
[[nodiscard]] std::optional<double> route_time_s(const Instance& instance, const Placement& placement,
                                                 const std::vector<double>& rtt_s, const std::vector<int>& route);

}  // namespace windlass::chain
