// What tables and probes say of the chains, and what follows for the requests.
#include <string_view>

#include <fmt/format.h>

#include "gateway/router_state.h"

namespace windlass::gateway {

Router::TableOutcome Router::table_changed(double now_s, dispatch::RoutingTable table) {
  if (has_table_ && table.version <= table_.version) return {};
  TableOutcome outcome{true, {}};
  has_table_ = true;
  table_ = std::move(table);
  table_received_s_ = now_s;
  for (auto& [name, model] : models_) {
    model->listed = false;
    for (auto& slot : model->slots) slot->listed = false;
  }
  std::set<const Model*> remade;  // with a policy that knows of no request yet
  for (const dispatch::ModelRoute& route : table_.models) {
    auto& model = models_[route.served_name];
    bool new_policy = model == nullptr;
    if (new_policy) {
      model = std::make_unique<Model>();
      model->waiting = dispatch::WaitingLine(options_.queue_order);
      model->decode_waiting = dispatch::WaitingLine(options_.queue_order);
    } else {
      const bool same = model->route.ttft_slo_s == route.ttft_slo_s && model->route.tpot_slo_s == route.tpot_slo_s;
      new_policy = !same && model->tracker() != nullptr;  // it places by them
    }
    obey(*model, route);
    if (new_policy) {
      model->policy = dispatch::make_policy(options_.policy, Rng(options_.seed, "dispatch of " + route.served_name),
                                            dispatch::PolicyRules{model->rules(), {}});
      remade.insert(model.get());
    }
  }
  std::vector<RequestId> orphans;  // ending a request may drop its model, so the walk over models only collects them
  for (auto& [name, model] : models_) {
    if (model->listed) {
      model->start_over();
      if (remade.contains(model.get())) place_again(now_s, *model);
      if (!model->decode_listed) {
        for (const auto& waiting : model->decode_waiting.take_all()) begin_anew(now_s, *model, waiting.id, outcome.actions);
      }
      slots_freed(now_s, name, model->slots, outcome.actions);
      continue;
    }
    for (const auto& slot : model->slots) empty_queue_of(*model, *slot);
    for (const auto* line : {&model->waiting, &model->decode_waiting}) {
      for (const auto& waiting : line->all()) orphans.push_back(waiting.id);
    }
  }
  for (const RequestId id : orphans) reject_unserved(now_s, id, outcome.actions);
  std::erase_if(models_, [](const auto& entry) { return !entry.second->listed && entry.second->slots.empty(); });
  return outcome;
}

// The model's slots as the route has them.
void Router::obey(Model& model, const dispatch::ModelRoute& route) {
  model.listed = true;
  model.most_input_tokens = std::numeric_limits<int>::max();
  std::map<std::pair<std::string_view, std::string_view>, SlotPtr> before;  // a model may have thousands
  for (const auto& slot : model.slots) {
    before.emplace(std::pair(std::string_view(slot->id), std::string_view(slot->address)), slot);
  }
  const std::vector<SlotPtr> old = std::exchange(model.slots, {});
  std::vector<std::size_t> index_of;  // a chain's, in the model's list
  for (const dispatch::Chain& chain : route.chains) {
    index_of.push_back(model.slots.size());
    if (chain.hops.empty()) continue;
    const auto known = before.find({chain.id, chain.hops.front()});
    auto slot = known == before.end() ? std::make_shared<ChainSlot>(options_.queue_order) : known->second;
    if (known == before.end()) {
      slot->id = chain.id;
      slot->address = chain.hops.front();
      slot->key = ++last_key_;
    }
    slot->next_hops = fmt::format("{}", fmt::join(chain.hops.begin() + 1, chain.hops.end(), ","));
    slot->token = chain.token;
    slot->role = chain.role;
    slot->service_rate_per_s = chain.service_rate_per_s;
    slot->capacity = chain.capacity;
    slot->draining = chain.draining;
    slot->packing.reset();
    if (chain.latency >= 0 && chain.share > 0) {
      slot->packing = dispatch::shared(route.latencies.at(static_cast<std::size_t>(chain.latency)), std::min(1.0, chain.share));
      const double room = slot->packing->kv_capacity_tokens - slot->packing->kv_request_tokens;
      if (slot->packing->kv_capacity_tokens > 0 && room < model.most_input_tokens) {
        model.most_input_tokens = std::max(1, static_cast<int>(room));
      }
    }
    slot->contact = contact_of(slot->address);
    slot->listed = true;
    model.slots.push_back(std::move(slot));
  }
  std::vector<ChainTurns::Weight> of_prefill;
  for (std::size_t k = 0; k < route.chains.size(); ++k) {
    if (route.chains[k].hops.empty()) continue;
    std::vector<ChainTurns::Weight> weights;
    double together = 0;
    for (const dispatch::DecodeWeight& one : route.chains[k].decode_weights) {
      const auto to = static_cast<std::size_t>(one.chain);
      const bool there = to < route.chains.size() && !route.chains[to].hops.empty();
      if (!there || route.chains[to].role != dispatch::Role::kDecode || !(one.weight > 0)) continue;
      weights.push_back({model.slots[index_of[to]]->key, index_of[to], one.weight});
      together += one.weight;
    }
    ChainSlot& slot = *model.slots[index_of[k]];
    slot.decode_turns.set(weights);
    if (together > 0) of_prefill.push_back({slot.key, index_of[k], together});
  }
  model.prefill_turns.set(of_prefill);
  model.refresh_roles();
  for (const auto& slot : old) {
    if (!slot->open() || !model.can_begin_at(*slot)) empty_queue_of(model, *slot);
    if (!slot->listed && slot->in_flight > 0) model.slots.push_back(slot);
  }
  model.route = route;
  model.route.chains.clear();
}

Contact Router::contact_of(const std::string& address) const {
  const auto found = contacts_.find(address);
  return found == contacts_.end() ? Contact::kAnswers : found->second;
}

Actions Router::contact_changed(double now_s, const std::string& address, Contact contact) {
  if (contact == contact_of(address)) return {};
  Actions actions;
  if (contact == Contact::kAnswers) {
    contacts_.erase(address);
  } else {
    contacts_[address] = contact;
  }
  std::set<std::string> touched;
  for (auto& [name, model] : models_) {
    for (auto& slot : model->slots) {
      if (slot->address != address) continue;
      slot->contact = contact;
      if (!slot->open()) empty_queue_of(*model, *slot);
      if (model->listed) model->tell(*slot);
      touched.insert(name);
    }
    if (model->listed && touched.contains(name) && model->refresh_roles()) roles_changed(*model);
  }
  if (contact >= Contact::kUnreachable) {
    std::vector<RequestId> held;
    for (const auto& [id, request] : requests_) {
      if (request.at() != nullptr && request.at()->address == address) held.push_back(id);
    }
    for (const RequestId id : held) {
      Request& request = requests_.at(id);
      const std::string model = request.record.model;
      if (!request.response_started && !request.moved) {
        request.moved = true;
        ++contact_counts_.recalled[model];
        actions.push_back(Recall{id});
        wait_again(now_s, id, wait_limit_s(now_s, false, request), actions);
      } else if (contact == Contact::kLost) {
        ++contact_counts_.lost[model];
        const std::string message = fmt::format("The worker {} is out of reach.", request.at()->id);
        reject(now_s, id, Reject{id, 502, "worker_failed", message, 0}, actions);
      }
    }
  }
  if (contact == Contact::kLost) lose_prefill_worker(now_s, address, actions);
  for (const std::string& name : touched) slots_freed(now_s, name, {}, actions);
  return actions;
}

// Requests can begin at other chains than before.
void Router::roles_changed(Model& model) {
  for (const auto& slot : model.slots) {
    if (!model.can_begin_at(*slot)) empty_queue_of(model, *slot);
    model.tell(*slot);
  }
}

// What a lost worker kept of first steps is gone; their requests go on without it.
void Router::lose_prefill_worker(double now_s, const std::string& address, Actions& actions) {
  std::vector<RequestId> kept;
  for (const auto& [id, request] : requests_) {
    if (request.prefilled && request.prefill != nullptr && request.prefill->address == address) kept.push_back(id);
  }
  for (const RequestId id : kept) {
    for (Action& action : prefill_ended(now_s, id)) actions.push_back(std::move(action));
  }
}

}  // namespace windlass::gateway
