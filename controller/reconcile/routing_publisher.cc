// See routing_publisher.h.
#include "controller/reconcile/routing_publisher.h"

#include <algorithm>

namespace windlass::controller {

std::optional<dispatch::RoutingTable> RoutingPublisher::ask(const GatewayQuestion& question, double now_s) {
  const std::lock_guard lock(mutex_);
  const bool known = gateways_.contains(question.id);
  Gateway& gateway = gateways_[question.id];
  stirred_ = stirred_ || !known || !shares_.contains(question.id) || gateway.peer.acknowledged != question.after;
  gateway.peer = {question.id, question.admin_address, question.admin_tls, question.after, now_s};
  gateway.loads = question.loads;
  drop_superseded(gateway);
  // A gateway that has no share waits for the next publish(), which gives it one.
  if (!serving_ || !shares_.contains(question.id) || table_.version <= question.after) return std::nullopt;
  return table_of(question.id);
}

std::optional<dispatch::RoutingTable> RoutingPublisher::newer(const std::string& id, dispatch::TableVersion after,
                                                              double now_s) {
  const std::lock_guard lock(mutex_);
  const auto found = gateways_.find(id);
  if (found != gateways_.end()) found->second.peer.last_seen_s = now_s;
  if (!serving_ || !shares_.contains(id) || table_.version <= after) return std::nullopt;
  return table_of(id);
}

bool RoutingPublisher::serving() const {
  const std::lock_guard lock(mutex_);
  return serving_;
}

bool RoutingPublisher::stirred() const {
  const std::lock_guard lock(mutex_);
  return stirred_;
}

dispatch::TableVersion RoutingPublisher::publish(std::vector<dispatch::ModelRoute> models, std::int64_t term, double now_s) {
  const std::lock_guard lock(mutex_);
  stirred_ = false;
  forget_silent(now_s);
  if (table_.version.term != term) {
    // What an earlier leader gave is not known here, and versions of another term acknowledge nothing of this one.
    shares_.clear();
    balances_.clear();
    for (auto& [id, gateway] : gateways_) gateway.grants.clear();
  }
  Shares shares = next_shares(models, now_s);
  const bool changed = !serving_ || table_.version.term != term || table_.models != models || shares_ != shares;
  if (changed) {
    table_.version.counter = table_.version.term == term ? table_.version.counter + 1 : 1;
    table_.version.term = term;
    table_.models = std::move(models);
    shares_ = std::move(shares);
    for (auto& [id, gateway] : gateways_) note_grants(gateway, shares_[id]);
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
  for (const auto& [id, gateway] : gateways_) {
    if (now_s - gateway.peer.last_seen_s <= kGatewayTimeoutS) all.push_back(gateway.peer);
  }
  return all;
}

void RoutingPublisher::forget_silent(double now_s) {
  std::erase_if(gateways_, [&](const auto& one) { return now_s - one.second.peer.last_seen_s > kGatewayTimeoutS; });
}

void RoutingPublisher::drop_superseded(Gateway& gateway) {
  if (gateway.peer.acknowledged.term != table_.version.term) return;
  for (auto it = gateway.grants.begin(); it != gateway.grants.end();) {
    auto& grants = it->second;
    while (grants.size() > 1 && grants[1].counter <= gateway.peer.acknowledged.counter) grants.pop_front();
    const bool nothing = grants.size() == 1 && grants[0].slots == 0 && grants[0].counter <= gateway.peer.acknowledged.counter;
    it = nothing ? gateway.grants.erase(it) : std::next(it);
  }
}

void RoutingPublisher::note_grants(Gateway& gateway, const std::map<ChainKey, int>& shares) const {
  for (const auto& [chain, slots] : shares) {
    auto& grants = gateway.grants[chain];
    if (grants.empty() || grants.back().slots != slots) grants.push_back({table_.version.counter, slots});
  }
  for (auto& [chain, grants] : gateway.grants) {
    if (!shares.contains(chain) && grants.back().slots != 0) grants.push_back({table_.version.counter, 0});
  }
}

int RoutingPublisher::may_hold(const Gateway& gateway, const ChainKey& chain) {
  int most = 0;
  if (const auto found = gateway.grants.find(chain); found != gateway.grants.end()) {
    for (const Grant& grant : found->second) most = std::max(most, grant.slots);
  }
  return most;
}

RoutingPublisher::Shares RoutingPublisher::next_shares(const std::vector<dispatch::ModelRoute>& models, double now_s) {
  Shares shares;
  std::vector<std::string> ids;
  for (const auto& [id, gateway] : gateways_) {
    ids.push_back(id);
    shares[id];
  }
  std::set<std::string> served;
  for (const dispatch::ModelRoute& model : models) {
    served.insert(model.served_name);
    std::map<std::string, GatewayLoad> loads;
    for (const auto& [id, gateway] : gateways_) {
      if (const auto load = gateway.loads.find(model.served_name); load != gateway.loads.end()) loads[id] = load->second;
    }
    std::vector<int> capacities;
    int total = 0;
    for (const dispatch::Chain& chain : model.chains) {
      capacities.push_back(chain.capacity);
      total += chain.draining ? 0 : chain.capacity;
    }
    const auto targets = whole_slots(capacities, balances_[model.served_name].move(ids, loads, total, now_s));
    for (std::size_t k = 0; k < model.chains.size(); ++k) {
      const ChainKey key{model.served_name, model.chains[k].id};
      int free = capacities[k];
      for (const auto& [id, gateway] : gateways_) free -= may_hold(gateway, key);
      for (std::size_t g = 0; g < ids.size(); ++g) {
        const int held = may_hold(gateways_.at(ids[g]), key);
        const int growth = std::clamp(targets[k][g] - held, 0, std::max(0, free));
        free -= growth;
        shares[ids[g]][key] = std::min(targets[k][g], held) + growth;
      }
    }
  }
  std::erase_if(balances_, [&](const auto& one) { return !served.contains(one.first); });
  return shares;
}

dispatch::RoutingTable RoutingPublisher::table_of(const std::string& id) const {
  dispatch::RoutingTable table = table_;
  const auto& shares = shares_.at(id);
  for (dispatch::ModelRoute& model : table.models) {
    for (dispatch::Chain& chain : model.chains) {
      const auto share = shares.find({model.served_name, chain.id});
      chain.capacity = share == shares.end() ? 0 : share->second;
    }
  }
  return table;
}

}  // namespace windlass::controller
