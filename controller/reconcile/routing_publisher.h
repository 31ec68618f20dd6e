// RoutingPublisher: the meeting point of the core, which writes the routing table, and the gateways, which wait for it.
//
// Thread-safe: the core publishes from its loop, the HTTP server asks from its own threads. A gateway makes itself known by
// asking; it stays known for kGatewayTimeoutS after its last question ended. Each is given its share of every chain's capacity;
// the shares of all live gateways add up to the capacity.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "planner/dispatch/routing_table.h"

namespace windlass::controller {

struct GatewayPeer {
  std::string id;
  std::string admin_address;            // where its /metrics are
  dispatch::TableVersion acknowledged;  // the table it holds
  double last_seen_s = 0;               // monotonic
};

class RoutingPublisher {
 public:
  // Longer than a long poll: a gateway that waits in one is not silent.
  static constexpr double kGatewayTimeoutS = 30;

  // A gateway asks. Notes it, and returns its table if that is newer than `after`; nullopt if it has to wait.
  // REQUIRES: serving().
  [[nodiscard]] std::optional<dispatch::RoutingTable> ask(const std::string& id, const std::string& admin_address,
                                                          dispatch::TableVersion after, double now_s);

  // The same for a gateway that is waiting, without noting anything of it but that it is alive.
  [[nodiscard]] std::optional<dispatch::RoutingTable> newer(const std::string& id, dispatch::TableVersion after, double now_s);

  // Whether this controller leads and has a table.
  [[nodiscard]] bool serving() const;

  // Replaces the table. Its version becomes (term, the next counter) if anything changed, the set of live gateways included;
  // else it stays. Returns the version in force.
  dispatch::TableVersion publish(std::vector<dispatch::ModelRoute> models, std::int64_t term, double now_s);

  // We no longer lead: nothing is served until the next publish().
  void withdraw();

  // Those seen within kGatewayTimeoutS, in the order of their ids.
  [[nodiscard]] std::vector<GatewayPeer> gateways(double now_s) const;

 private:
  [[nodiscard]] dispatch::RoutingTable share_of(const std::string& id) const;
  [[nodiscard]] std::vector<std::string> live(double now_s) const;

  mutable std::mutex mutex_;
  bool serving_ = false;
  dispatch::RoutingTable table_;
  std::map<std::string, GatewayPeer> gateways_;
  std::vector<std::string> sharing_;  // the gateways among which the table in force is shared
};

}  // namespace windlass::controller
