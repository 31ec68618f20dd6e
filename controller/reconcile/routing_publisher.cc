// See routing_publisher.h.
#include "controller/reconcile/routing_publisher.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace windlass::controller {

std::optional<dispatch::RoutingTable> RoutingPublisher::ask(const GatewayQuestion& question, double now_s) {
  const std::lock_guard lock(mutex_);
  const bool known = gateways_.contains(question.id);
  const bool full = !known && gateways_.size() >= kMaxGateways;
  if (!serving_ || full) forget_silent(now_s);  // otherwise publish() does
  if (full && gateways_.size() >= kMaxGateways) return std::nullopt;
  Gateway& gateway = gateways_[question.id];
  stirred_ = stirred_ || !known || !is_sharing(question.id) || gateway.peer.acknowledged != question.after;
  gateway.peer = {question.id, question.admin_address, question.admin_tls, question.after, now_s};
  gateway.loads = question.loads;
  if (question.over_share) {
    note_over_share(gateway, *question.over_share);
    drop_superseded(gateway);
  }
  // A gateway without a share waits for the next publish(), which gives it one.
  if (!serving_ || !is_sharing(question.id) || table_.version <= question.after) return std::nullopt;
  return table_of(question.id);
}

bool RoutingPublisher::knows(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return gateways_.contains(id);
}

std::optional<dispatch::RoutingTable> RoutingPublisher::newer(const std::string& id, dispatch::TableVersion after,
                                                              double now_s) {
  const std::lock_guard lock(mutex_);
  const auto found = gateways_.find(id);
  if (found != gateways_.end()) found->second.peer.last_seen_s = now_s;
  if (!serving_ || !is_sharing(id) || table_.version <= after) return std::nullopt;
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
  const bool new_term = table_.version.term != term;
  if (new_term) {
    // Shares from an earlier leader are not known here, and versions of another term acknowledge nothing in this one.
    models_.clear();
    for (auto& [id, gateway] : gateways_) gateway.grants.clear();
  }
  std::vector<std::string> ids;
  for (const auto& [id, gateway] : gateways_) ids.push_back(id);
  const bool others = ids != sharing_;
  sharing_ = std::move(ids);

  const bool routes_changed = table_.models != models;
  std::map<std::string, const dispatch::ModelRoute*> before;
  if (routes_changed) {
    for (const dispatch::ModelRoute& route : table_.models) before[route.served_name] = &route;
  }
  bool changed = !serving_ || new_term || others || routes_changed;
  std::vector<std::pair<const dispatch::ModelRoute*, Shares>> moved;
  for (const dispatch::ModelRoute& route : models) {
    Model& model = models_[route.served_name];
    bool look = others || model.stale || has_queue(route.served_name);
    if (routes_changed && !look) {
      const auto old = before.find(route.served_name);
      look = old == before.end() || *old->second != route;
    }
    if (!look) continue;  // nothing that its shares depend on has changed
    Shares shares = next_shares(route, model, now_s);
    model.stale = false;
    changed = changed || shares != model.shares;
    moved.emplace_back(&route, std::move(shares));
  }
  if (!changed) return table_.version;
  table_.version.counter = new_term ? 1 : table_.version.counter + 1;
  table_.version.term = term;
  for (auto& [route, shares] : moved) {
    note_grants(route->served_name, route, shares);
    models_[route->served_name].shares = std::move(shares);
  }
  for (const dispatch::ModelRoute& route : models) before.erase(route.served_name);
  for (const auto& [name, gone] : before) {
    note_grants(name, nullptr, {});
    models_.erase(name);
  }
  table_.models = std::move(models);
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

bool RoutingPublisher::is_sharing(const std::string& id) const {
  return std::binary_search(sharing_.begin(), sharing_.end(), id);
}

void RoutingPublisher::forget_silent(double now_s) {
  std::erase_if(gateways_, [&](const auto& one) { return now_s - one.second.peer.last_seen_s > kGatewayTimeoutS; });
}

void RoutingPublisher::drop_superseded(Gateway& gateway) {
  if (gateway.peer.acknowledged.term != table_.version.term) return;
  const std::int64_t obeyed = gateway.peer.acknowledged.counter;
  for (auto of_model = gateway.grants.begin(); of_model != gateway.grants.end();) {
    bool dropped = false;
    Grants& of_chains = of_model->second;
    for (auto it = of_chains.begin(); it != of_chains.end();) {
      std::deque<Grant>& grants = it->second;
      for (; grants.size() > 1 && grants[1].counter <= obeyed; dropped = true) grants.pop_front();
      const bool nothing = grants.size() == 1 && grants[0].slots == 0 && grants[0].counter <= obeyed;
      it = nothing ? of_chains.erase(it) : std::next(it);
    }
    const auto model = models_.find(of_model->first);
    if (dropped && model != models_.end()) model->second.stale = true;
    of_model = of_chains.empty() ? gateway.grants.erase(of_model) : std::next(of_model);
  }
}

void RoutingPublisher::note_over_share(Gateway& gateway, const OverShare& over) {
  if (over == gateway.over_share) return;
  const OverShare before = std::exchange(gateway.over_share, over);
  for (const auto* side : {&over, &before}) {
    for (const auto& [name, chains] : *side) {
      if (const auto model = models_.find(name); model != models_.end()) model->second.stale = true;
    }
  }
  stirred_ = true;
}

void RoutingPublisher::note_grants(const std::string& name, const dispatch::ModelRoute* route, const Shares& shares) {
  const std::int64_t counter = table_.version.counter;
  for (auto& [id, gateway] : gateways_) {
    Grants& grants = gateway.grants[name];
    std::set<std::string> there;
    if (route != nullptr) {
      const std::vector<int>& slots = shares.at(id);
      for (std::size_t k = 0; k < route->chains.size(); ++k) {
        auto& of_chain = grants[route->chains[k].id];
        if (of_chain.empty() || of_chain.back().slots != slots[k]) of_chain.push_back({counter, slots[k]});
        there.insert(route->chains[k].id);
      }
    }
    for (auto& [chain, of_chain] : grants) {
      if (!there.contains(chain) && of_chain.back().slots != 0) of_chain.push_back({counter, 0});
    }
  }
}

int RoutingPublisher::may_hold(const Gateway& gateway, const std::string& model, const std::string& chain) {
  int most = 0;
  if (const auto over = gateway.over_share.find(model); over != gateway.over_share.end()) {
    if (const auto found = over->second.find(chain); found != over->second.end()) most = found->second;
  }
  const auto grants = gateway.grants.find(model);
  if (grants == gateway.grants.end()) return most;
  if (const auto found = grants->second.find(chain); found != grants->second.end()) {
    for (const Grant& grant : found->second) most = std::max(most, grant.slots);
  }
  return most;
}

bool RoutingPublisher::has_queue(const std::string& model) const {
  return std::any_of(gateways_.begin(), gateways_.end(), [&](const auto& one) {
    const auto load = one.second.loads.find(model);
    return load != one.second.loads.end() && load->second.queued > 0;
  });
}

RoutingPublisher::Shares RoutingPublisher::next_shares(const dispatch::ModelRoute& route, Model& model, double now_s) {
  Shares shares;
  std::map<std::string, GatewayLoad> loads;
  for (const std::string& id : sharing_) {
    shares[id].resize(route.chains.size());
    const auto& all = gateways_.at(id).loads;
    if (const auto load = all.find(route.served_name); load != all.end()) loads[id] = load->second;
  }
  std::vector<int> capacities;
  int total = 0;
  for (const dispatch::Chain& chain : route.chains) {
    capacities.push_back(chain.capacity);
    total += chain.draining ? 0 : chain.capacity;
  }
  const auto targets = whole_slots(capacities, model.balance.move(sharing_, loads, total, now_s));
  for (std::size_t k = 0; k < route.chains.size(); ++k) {
    std::vector<int> held;
    for (const std::string& id : sharing_) held.push_back(may_hold(gateways_.at(id), route.served_name, route.chains[k].id));
    int free = capacities[k] - std::accumulate(held.begin(), held.end(), 0);
    for (std::size_t g = 0; g < sharing_.size(); ++g) {
      const int growth = std::clamp(targets[k][g] - held[g], 0, std::max(0, free));
      free -= growth;
      shares[sharing_[g]][k] = std::min(targets[k][g], held[g]) + growth;
    }
  }
  return shares;
}

dispatch::RoutingTable RoutingPublisher::table_of(const std::string& id) const {
  dispatch::RoutingTable table = table_;
  for (dispatch::ModelRoute& model : table.models) {
    const std::vector<int>& slots = models_.at(model.served_name).shares.at(id);
    for (std::size_t k = 0; k < model.chains.size(); ++k) {
      dispatch::Chain& chain = model.chains[k];
      if (chain.capacity > 0 && slots[k] > 0) chain.share = static_cast<double>(slots[k]) / chain.capacity;
      chain.capacity = slots[k];
    }
  }
  return table;
}

}  // namespace windlass::controller
