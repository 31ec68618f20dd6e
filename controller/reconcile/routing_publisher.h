// RoutingPublisher: the meeting point of the core, which writes the routing table, and the gateways, which wait for it.
//
// Thread-safe: the core publishes from its loop, the HTTP server asks from its own threads. A gateway makes itself known by
// asking; it stays known for kGatewayTimeoutS after its last question ended. Each is given its share of every chain's capacity
// (slot_shares.h). What keeps two gateways from holding more than a chain's capacity while shares move:
//   - a share that shrinks is in the next table at once; one that grows does so only by what no gateway may still hold
//   - what a gateway may hold of a chain is the largest share in any table since the one that it says it obeys (it says so by
//     asking for a newer one), and the requests in flight beyond it that it tells of: they end by themselves, without new ones
//     in their place, but until then their slots are not free
//   - therefore the sum of what they hold is at most the capacity, or what it was before the capacity itself shrank
// It does not hold across two events: a new leader does not know its predecessor's shares, only who asked him before he led, so
// until each gateway has its first table the old ones count beside the new; and a gateway that is silent for kGatewayTimeoutS
// loses its share to the others though it may still serve clients with it. In both cases workers that are Windlass's own refuse
// what is beyond their own limit.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "controller/reconcile/slot_shares.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::controller {

struct GatewayPeer {
  std::string id;
  std::string admin_address;            // where its /metrics are
  bool admin_tls = false;               // and that they are behind TLS
  dispatch::TableVersion acknowledged;  // the table it holds
  double last_seen_s = 0;               // monotonic
};

// Requests in flight by served name and chain id, where they are more than the gateway's share.
using OverShare = std::map<std::string, std::map<std::string, int>>;

// What a gateway says as it asks.
struct GatewayQuestion {
  std::string id;
  std::string admin_address;
  bool admin_tls = false;
  dispatch::TableVersion after;              // the table it obeys
  std::map<std::string, GatewayLoad> loads;  // by served name; none: idle
  // Under the table that it obeys. nullopt: too much to tell; what it may have held before counts on.
  std::optional<OverShare> over_share = OverShare();
};

class RoutingPublisher {
 public:
  // Several of a gateway's polls (2 s; those of older gateways, 20 s, count as seen while they wait).
  static constexpr double kGatewayTimeoutS = 10;
  // More than share any service's slots in earnest; whoever may ask could else fill the memory with names.
  static constexpr std::size_t kMaxGateways = 256;

  // A gateway asks. Notes it, and returns its table if that is newer than `after`; nullopt if it has to wait. While nothing is
  // served it is noted all the same: who leads next shares slots with those who asked him before. One beyond kMaxGateways is
  // not noted; it gets nullopt, and knows() says so.
  [[nodiscard]] std::optional<dispatch::RoutingTable> ask(const GatewayQuestion& question, double now_s);
  [[nodiscard]] std::optional<dispatch::RoutingTable> ask(const std::string& id, const std::string& admin_address,
                                                          dispatch::TableVersion after, double now_s) {
    return ask(GatewayQuestion{id, admin_address, false, after, {}}, now_s);
  }

  [[nodiscard]] bool knows(const std::string& id) const;

  // The same as ask() for a gateway that is waiting, without noting anything of it but that it is alive.
  [[nodiscard]] std::optional<dispatch::RoutingTable> newer(const std::string& id, dispatch::TableVersion after, double now_s);

  // Whether this controller leads and has a table.
  [[nodiscard]] bool serving() const;

  // Replaces the table and moves the shares. The version becomes (term, the next counter) if anything changed, a share
  // included; else it stays. Returns the version in force.
  dispatch::TableVersion publish(std::vector<dispatch::ModelRoute> models, std::int64_t term, double now_s);

  // We no longer lead: nothing is served until the next publish().
  void withdraw();

  // A gateway has said something since the last publish() that may change the table for others: it is new, obeys another
  // table, or holds more or less beyond its shares. Loads alone do not count; they are looked at in every publish().
  [[nodiscard]] bool stirred() const;

  // Those seen within kGatewayTimeoutS, in the order of their ids.
  [[nodiscard]] std::vector<GatewayPeer> gateways(double now_s) const;

 private:
  struct Grant {
    std::int64_t counter = 0;  // of the first table that said so
    int slots = 0;
  };
  // By chain id; in this term, oldest first; each holds until the next.
  using Grants = std::map<std::string, std::deque<Grant>>;
  struct Gateway {
    GatewayPeer peer;
    std::map<std::string, GatewayLoad> loads;
    std::map<std::string, Grants> grants;  // by served name
    OverShare over_share;
  };
  // Slots by gateway, in the order of the route's chains.
  using Shares = std::map<std::string, std::vector<int>>;
  struct Model {
    ShareBalance balance;
    Shares shares;      // in force
    bool stale = true;  // what a gateway may hold of it has changed since they were worked out
  };

  [[nodiscard]] dispatch::RoutingTable table_of(const std::string& id) const;
  [[nodiscard]] bool is_sharing(const std::string& id) const;
  void forget_silent(double now_s);
  // The grants that the gateway can no longer act on, by what it acknowledged.
  void drop_superseded(Gateway& gateway);
  void note_over_share(Gateway& gateway, const OverShare& over);
  // What a table with these shares of the model lets each gateway hold. `route` null: the model has gone.
  void note_grants(const std::string& name, const dispatch::ModelRoute* route, const Shares& shares);
  [[nodiscard]] static int may_hold(const Gateway& gateway, const std::string& model, const std::string& chain);
  [[nodiscard]] bool has_queue(const std::string& model) const;
  // Shares that are to be in force with this route.
  [[nodiscard]] Shares next_shares(const dispatch::ModelRoute& route, Model& model, double now_s);

  mutable std::mutex mutex_;
  bool serving_ = false;
  bool stirred_ = false;
  dispatch::RoutingTable table_;
  std::map<std::string, Gateway> gateways_;  // by id
  std::vector<std::string> sharing_;         // those with shares in the table in force; others wait for the next
  std::map<std::string, Model> models_;      // by served name
};

}  // namespace windlass::controller
