// RouteGraph: the links that a request may take through a placement, and the cheapest route along them.
//
// After blocks 1..b-1 a request may go to any server that holds block b, and it is processed there up to that server's last
// block. So the state is the next block alone (L+1 nodes), and a link (i, j) of the papers is identified by its server j and
// the number of blocks m_ij that j processes. The inference time of a link is t_ij = communication_s + block_s * m_ij (Sun et
// al., Eq. 4); the caller adds other costs (waiting, a penalty). The graph is acyclic, so one pass replaces Dijkstra: O(sum_j
// m_j).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/chain/placement.h"

namespace windlass::chain {

struct Route {
  std::vector<int> servers;  // in the order of the path
  std::vector<int> blocks;   // m_ij: number of blocks that each of them processes; they sum to L
  double time_s = 0;         // sum of t_ij
  double cost_s = 0;         // sum of the link costs used to choose it

  bool operator==(const Route&) const = default;
};

class RouteGraph {
 public:
  // `slots`: cache slots per server; links that need more than their server has do not exist. Empty: no limit.
  // `communication_s`: the times of one client; empty: those of the servers.
  RouteGraph(const Instance& instance, const Placement& placement, std::span<const long> slots = {},
             std::span<const double> communication_s = {});

  // The links of a server are consecutive: link(server, 1), link(server, 2), ... up to the number of its blocks.
  [[nodiscard]] std::size_t links() const { return times_s_.size(); }
  [[nodiscard]] std::size_t link(int server, int blocks) const {
    return first_link_[static_cast<std::size_t>(server)] + static_cast<std::size_t>(blocks) - 1;
  }
  [[nodiscard]] int servers() const { return static_cast<int>(placement_.size()); }
  [[nodiscard]] int blocks() const { return blocks_; }
  [[nodiscard]] const BlockRange& range_on(int server) const { return placement_[static_cast<std::size_t>(server)]; }
  [[nodiscard]] int blocks_on(int server) const { return range_on(server).blocks; }

  // t_ij by link; infinite if the link does not exist.
  [[nodiscard]] const std::vector<double>& times_s() const { return times_s_; }

  // The cheapest route for these link costs. None if some block is on no server or every route has infinite cost. Ties go to
  // the servers listed first, at the first hop where routes differ. REQUIRES: costs_s has links() values >= 0.
  [[nodiscard]] std::optional<Route> cheapest(std::span<const double> costs_s) const;

 private:
  int blocks_ = 0;
  Placement placement_;
  std::vector<std::size_t> first_link_;         // by server
  std::vector<double> times_s_;                 // by link
  std::vector<std::vector<int>> servers_with_;  // by block - 1, ascending
};

// The route with the least inference time plus penalty; without a penalty, shortest-path routing (Lemma 3.4).
using LinkPenalty = std::function<double(int server, int blocks)>;
[[nodiscard]] std::optional<Route> shortest_route(const Instance& instance, const Placement& placement,
                                                  const LinkPenalty& penalty_s = {});

}  // namespace windlass::chain
