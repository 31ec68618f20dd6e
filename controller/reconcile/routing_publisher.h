// RoutingPublisher hands the routing table from the core, which writes it, to the gateways, which wait for it.
//
// Thread-safe: the core publishes from its loop; the HTTP server asks from its own threads. A gateway registers by asking, and
// stays registered until kGatewayTimeoutS after its last request. Each gateway gets a share of every chain's capacity
// (slot_shares.h). When shares move from one gateway to another, the gateways together still never use more than a chain's
// capacity:
//
// Two events break this rule. A new leader does not know its predecessor's shares, only which gateways polled it before; until
// each has its first table, old and new shares count together. And a gateway that is silent for kGatewayTimeoutS loses its
// share to the others, although it may still serve clients. In both cases, windlass-worker refuses requests beyond its own
// limit.
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
  std::string admin_address;            // address of its /metrics
  bool admin_tls = false;               // whether that address uses TLS
  dispatch::TableVersion acknowledged;  // the table that it has
  double last_seen_s = 0;               // monotonic
};

// Excess requests in flight, beyond the gateway's share, by served name and chain id.
using OverShare = std::map<std::string, std::map<std::string, int>>;

// A gateway's request for a table.
struct GatewayQuestion {
  std::string id;
  std::string admin_address;
  bool admin_tls = false;
  dispatch::TableVersion after;              // the table it uses
  std::map<std::string, GatewayLoad> loads;  // by served name; absent: idle
  // Relative to the table it uses. nullopt: too large to report, so the earlier upper bound stays.
  std::optional<OverShare> over_share = OverShare();
};

class RoutingPublisher {
 public:
  // Several poll periods of a gateway (2 s). Older gateways poll every 20 s; they count as seen while they wait.
  static constexpr double kGatewayTimeoutS = 10;
  // More than any real installation has. Without a limit, anybody who may ask could fill the memory with names.
  static constexpr std::size_t kMaxGateways = 256;

  // Registers the gateway, and returns its table if newer than `after`; nullopt: it has to wait. While not serving, gateways
  // are registered too, because the next leader shares slots among those that polled it before. A gateway beyond kMaxGateways
  // is not registered: it gets nullopt, and knows() returns false.
  [[nodiscard]] std::optional<dispatch::RoutingTable> ask(const GatewayQuestion& question, double now_s);
  [[nodiscard]] std::optional<dispatch::RoutingTable> ask(const std::string& id, const std::string& admin_address,
                                                          dispatch::TableVersion after, double now_s) {
    return ask(GatewayQuestion{id, admin_address, false, after, {}}, now_s);
  }

  [[nodiscard]] bool knows(const std::string& id) const;

  // Like ask(), for a waiting gateway; records only that the gateway is alive.
  [[nodiscard]] std::optional<dispatch::RoutingTable> newer(const std::string& id, dispatch::TableVersion after, double now_s);

  // Whether this controller leads and has a table.
  [[nodiscard]] bool serving() const;

  // Replaces the table and moves the shares. If anything changed, including a share, the version becomes (term, next counter);
  // otherwise it stays. Returns the version in force.
  dispatch::TableVersion publish(std::vector<dispatch::ModelRoute> models, std::int64_t term, double now_s);

  // We no longer lead: serves no table until the next publish().
  void withdraw();

  // Whether a gateway has reported something since the last publish() that may change the table for others: it is new, uses
  // another table, or its excess has changed. Loads alone do not count; every publish() looks at them.
  [[nodiscard]] bool stirred() const;

  // Those seen within kGatewayTimeoutS, ordered by id.
  [[nodiscard]] std::vector<GatewayPeer> gateways(double now_s) const;

 private:
  struct Grant {
    std::int64_t counter = 0;  // of the first table with these slots
    int slots = 0;
  };
  // By chain id, in this term, oldest first. Each grant is valid until the next.
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
    bool stale = true;  // what gateways may use has changed since the shares were computed
  };

  [[nodiscard]] dispatch::RoutingTable table_of(const std::string& id) const;
  [[nodiscard]] bool is_sharing(const std::string& id) const;
  void forget_silent(double now_s);
  // Drops grants that the gateway can no longer use, given what it acknowledged.
  void drop_superseded(Gateway& gateway);
  void note_over_share(Gateway& gateway, const OverShare& over);
  // Records what a table with these shares of the model grants each gateway. `route` null: the model is gone.
  void note_grants(const std::string& name, const dispatch::ModelRoute* route, const Shares& shares);
  [[nodiscard]] static int may_hold(const Gateway& gateway, const std::string& model, const std::string& chain);
  [[nodiscard]] bool has_queue(const std::string& model) const;
  // The shares for the next table with this route.
  [[nodiscard]] Shares next_shares(const dispatch::ModelRoute& route, Model& model, double now_s);

  mutable std::mutex mutex_;
  bool serving_ = false;
  bool stirred_ = false;
  dispatch::RoutingTable table_;
  std::map<std::string, Gateway> gateways_;  // by id
  std::vector<std::string> sharing_;         // gateways with shares in the table in force; others wait for the next table
  std::map<std::string, Model> models_;      // by served name
};

}  // namespace windlass::controller
