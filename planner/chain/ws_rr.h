// WS-RR: waiting-penalised shortest-path request routing (Sun et al., Section 3.3.2, Eq. 20-21 relaxed; Corollary 3.7).
//
// A new request takes the route with the least sum, over its links, of inference time and of the time until the link's server
// has room for it. If the true times are as estimated and servers give their slots in the order of arrival, the request has
// ended when the route's cost has passed. The paper's "tokens x time per token" is `scale` here: 1 when the instance's times
// are per request. Owns the states of the servers; decisions cost O(sum_j (m_j + slots of j)),
// however many requests wait. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/chain/routes.h"
#include "planner/chain/server_state.h"

namespace windlass::chain {

class WsRr {
 public:
  // Keeps a reference to the graph. REQUIRES: one number of slots a server, those the graph was made with.
  WsRr(const RouteGraph& graph, std::span<const long> slots);

  // For a request that arrives now; none when there is no route at all. Changes nothing.
  [[nodiscard]] std::optional<Route> route(double now_s, double scale = 1) const;

  // How long its servers' slots are thought to be in other hands: the largest wait of its links (t^W of Eq. 20-21a).
  [[nodiscard]] double wait_s(const Route& route, double now_s) const;

  // The request `id` was sent along this route, and is thought to end at that time.
  void add(std::int64_t id, const Route& route, double end_s);

  // It has ended. REQUIRES: what was given to add().
  void remove(std::int64_t id, const Route& route, double end_s);

  [[nodiscard]] const ServerState& state(int server) const { return states_[static_cast<std::size_t>(server)]; }

 private:
  const RouteGraph& graph_;
  std::vector<ServerState> states_;
};

}  // namespace windlass::chain
