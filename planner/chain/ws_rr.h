// WS-RR: waiting-penalised shortest-path request routing (Sun et al., Section 3.3.2, Eq. 20-21 relaxed; Corollary 3.7).
//
// A new request takes the route with the least sum over its links of inference time and time until the link's server has room.
// If actual times equal the estimates and servers assign slots in arrival order, the request ends after exactly the cost of its
// route. `scale` is the paper's "tokens x time per token": 1 if the instance's times are per request. Owns the states of the
// servers. A decision costs O(sum_j (m_j + slots of j)), however many requests wait. Not thread-safe.
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
  // Keeps a reference to the graph. REQUIRES: one number of slots per server, as used to make the graph.
  WsRr(const RouteGraph& graph, std::span<const long> slots);

  // The route for a request that arrives now; none if there is no route. Changes nothing.
  [[nodiscard]] std::optional<Route> route(double now_s, double scale = 1) const;

  // Estimated wait for slots: the largest wait of its links (t^W of Eq. 20-21a).
  [[nodiscard]] double wait_s(const Route& route, double now_s) const;

  // Request `id` was sent along this route and is expected to end at `end_s`.
  void add(std::int64_t id, const Route& route, double end_s);

  // The request has ended. REQUIRES: the arguments of add().
  void remove(std::int64_t id, const Route& route, double end_s);

  [[nodiscard]] const ServerState& state(int server) const { return states_[static_cast<std::size_t>(server)]; }

 private:
  const RouteGraph& graph_;
  std::vector<ServerState> states_;
};

}  // namespace windlass::chain
