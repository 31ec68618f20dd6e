// Routes through a placement: the links that a request may take, and the cheapest way along them.
//
// After blocks 1..b-1 a request may go to any server that holds block b, and it is processed there up to that server's last
// block. The state is therefore the next block alone (L+1 nodes), and a link (i, j) of the papers is told apart by its server j
// and by the number of blocks m_ij that j processes. The inference time of a link is t_ij = communication_s + block_s * m_ij
// (Sun et al., Eq. 4); what else a link costs (waiting, a penalty) is the caller's. Acyclic, so one pass in place of Dijkstra:
// O(sum_j m_j).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/chain/placement.h"

namespace windlass::chain {

struct Route {
  std::vector<int> servers;  // in the order in which a request passes them
  std::vector<int> blocks;   // m_ij: how many blocks each of them processes; they sum to L
  double time_s = 0;         // sum of t_ij
  double cost_s = 0;         // sum of the link costs by which it was chosen

  bool operator==(const Route&) const = default;
};

class RouteGraph {
 public:
  // `slots`: cache slots per server; a link that needs more of them than its server has does not exist. Empty: no limit.
  // `communication_s`: those of one client; empty: the servers' own.
  RouteGraph(const Instance& instance, const Placement& placement, std::span<const long> slots = {},
             std::span<const double> communication_s = {});

  // Links of a server are neighbours: link(server, 1), link(server, 2), ... up to the number of blocks it holds.
  [[nodiscard]] std::size_t links() const { return times_s_.size(); }
  [[nodiscard]] std::size_t link(int server, int blocks) const {
    return first_link_[static_cast<std::size_t>(server)] + static_cast<std::size_t>(blocks) - 1;
  }
  [[nodiscard]] int servers() const { return static_cast<int>(placement_.size()); }
  [[nodiscard]] int blocks_on(int server) const { return placement_[static_cast<std::size_t>(server)].blocks; }

  // t_ij by link; infinite where the link does not exist.
  [[nodiscard]] const std::vector<double>& times_s() const { return times_s_; }

  // The cheapest route by these costs of the links, or none: some block is on no server, or all ways cost infinity. Ties go to
  // the servers listed first, at the first hop where routes differ. REQUIRES: costs_s has links() values >= 0.
  [[nodiscard]] std::optional<Route> cheapest(std::span<const double> costs_s) const;

 private:
  int blocks_ = 0;
  Placement placement_;
  std::vector<std::size_t> first_link_;         // by server
  std::vector<double> times_s_;                 // by link
  std::vector<std::vector<int>> servers_with_;  // by block - 1, in rising order
};

// The route of least inference time plus penalty; without a penalty it is shortest-path routing (Lemma 3.4).
using LinkPenalty = std::function<double(int server, int blocks)>;
[[nodiscard]] std::optional<Route> shortest_route(const Instance& instance, const Placement& placement,
                                                  const LinkPenalty& penalty_s = {});

}  // namespace windlass::chain
