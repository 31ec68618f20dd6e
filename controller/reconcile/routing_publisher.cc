// See routing_publisher.h.
#include "controller/reconcile/routing_publisher.h"

#include <algorithm>

namespace windlass::controller {

std::optional<dispatch::RoutingTable> RoutingPublisher::ask(const std::string& id, const std::string& admin_address,
                                                            dispatch::TableVersion after, double now_s) {
  const std::lock_guard lock(mutex_);
  GatewayPeer& peer = gateways_[id];
  peer.id = id;
  peer.admin_address = admin_address;
  peer.acknowledged = after;
  peer.last_seen_s = now_s;
  // A gateway that is not among the sharing ones waits for the next publish(), which gives it a share.
  if (!serving_ || !std::binary_search(sharing_.begin(), sharing_.end(), id) || table_.version <= after) return std::nullopt;
  return share_of(id);
}

std::optional<dispatch::RoutingTable> RoutingPublisher::newer(const std::string& id, dispatch::TableVersion after,
                                                              double now_s) {
  const std::lock_guard lock(mutex_);
  const auto found = gateways_.find(id);
  if (found != gateways_.end()) found->second.last_seen_s = now_s;
  if (!serving_ || !std::binary_search(sharing_.begin(), sharing_.end(), id) || table_.version <= after) return std::nullopt;
  return share_of(id);
}

bool RoutingPublisher::serving() const {
  const std::lock_guard lock(mutex_);
  return serving_;
}

dispatch::TableVersion RoutingPublisher::publish(std::vector<dispatch::ModelRoute> models, std::int64_t term, double now_s) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> now_live = live(now_s);
  const bool changed = !serving_ || table_.version.term != term || table_.models != models || sharing_ != now_live;
  if (changed) {
    table_.version.counter = table_.version.term == term ? table_.version.counter + 1 : 1;
    table_.version.term = term;
    table_.models = std::move(models);
    sharing_ = std::move(now_live);
  }
  serving_ = true;
  return table_.version;
}

void RoutingPublisher::withdraw() {
  const std::lock_guard lock(mutex_);
  serving_ = false;
}

std::vector<GatewayPeer> RoutingPublisher::gateways(double now_s) const {
  const std::lock_guard lock(mutex_);
  std::vector<GatewayPeer> all;
  for (const auto& [id, peer] : gateways_) {
    if (now_s - peer.last_seen_s <= kGatewayTimeoutS) all.push_back(peer);
  }
  return all;
}

std::vector<std::string> RoutingPublisher::live(double now_s) const {
  std::vector<std::string> ids;
  for (const auto& [id, peer] : gateways_) {
    if (now_s - peer.last_seen_s <= kGatewayTimeoutS) ids.push_back(id);
  }
  return ids;
}

dispatch::RoutingTable RoutingPublisher::share_of(const std::string& id) const {
  dispatch::RoutingTable table = table_;
  const int count = static_cast<int>(sharing_.size());
  const int index = static_cast<int>(std::lower_bound(sharing_.begin(), sharing_.end(), id) - sharing_.begin());
  for (dispatch::ModelRoute& model : table.models) {
    for (std::size_t k = 0; k < model.chains.size(); ++k) {
      // What does not divide goes round, chain by chain, so that no gateway is always the one that goes short.
      const int capacity = model.chains[k].capacity;
      const int turn = (index + static_cast<int>(k)) % count;
      model.chains[k].capacity = capacity / count + (turn < capacity % count ? 1 : 0);
    }
  }
  return table;
}

}  // namespace windlass::controller
