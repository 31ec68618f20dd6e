// How the router reacts to a new routing table and to a worker whose contact changed: updates chains and moves requests.
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
  std::set<const Model*> remade;  // with a new policy that knows no request yet
  for (const dispatch::ModelRoute& route : table_.models) {
    auto& model = models_[route.served_name];
    if (model == nullptr) {
      model = std::make_unique<Model>();
      model->waiting = dispatch::WaitingLine(options_.queue_order);
      model->decode_waiting = dispatch::WaitingLine(options_.queue_order);
    }
    obey(*model, route);
    if (choose_policy(*model)) remade.insert(model.get());
  }
  std::vector<RequestId> orphans;  // ending a request may drop its model, so the loop over models only collects ids
  for (auto& [name, model] : models_) {
    if (model->listed) {
      model->start_over();
      if (remade.contains(model.get())) place_again(*model);
      if (!model->decode_listed) {
        for (const auto& waiting : model->decode_waiting.take_all()) restart(now_s, *model, waiting.id, outcome.actions);
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

// Updates the model's slots from the route.
void Router::obey(Model& model, const dispatch::ModelRoute& route) {
  model.listed = true;
  model.max_input_tokens = std::numeric_limits<int>::max();
  std::map<std::pair<std::string_view, std::string_view>, SlotPtr> before;  // a map, because a model may have thousands
  for (const auto& slot : model.slots) {
    before.emplace(std::pair(std::string_view(slot->id), std::string_view(slot->address)), slot);
  }
  const std::vector<SlotPtr> old = std::exchange(model.slots, {});
  std::vector<std::size_t> index_of;  // index of each chain in the model's list
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
    slot->follow(chain, route);
    slot->contact = contact_of(slot->address);
    if (slot->packing) model.limit_guesses_to(*slot->packing);
    model.slots.push_back(std::move(slot));
  }
  model.set_turns(route, index_of);
  model.refresh_roles();
  for (const auto& slot : old) {
    // What waits at a decode chain would be of the other role if it became a prefill chain.
    const bool keeps_role = slot->own_role_until_s > 0;
    if (!slot->open() || !model.can_begin_at(*slot) || keeps_role) empty_queue_of(model, *slot);
    if (!slot->listed && slot->in_flight > 0) model.slots.push_back(slot);
  }
  model.route = route;
  model.route.chains.clear();
}

// Makes the policy that the table asks for, unless the model has it already; returns true if it made one. The caller tells it
// about chains and requests in flight.
bool Router::choose_policy(Model& model) {
  const dispatch::PolicyKind kind = options_.policy.value_or(dispatch::gateway_policy(model.route.dispatch));
  dispatch::PolicyRules rules = model.rules();
  if (kind == dispatch::PolicyKind::kSplitwise) {  // a change of roles or objectives must not cost what it has learned
    rules.packing = {};
    rules.huawei = {};
  }
  if (model.policy != nullptr) {
    if (kind == model.policy_kind && (model.tracker() == nullptr || rules == model.policy_rules)) return false;
    for (const auto& slot : model.slots) empty_queue_of(model, *slot);
  }
  model.rebalanced_before = model.rebalanced();
  model.policy = dispatch::make_policy(kind, Rng(options_.seed, "dispatch of " + model.route.served_name), rules);
  model.policy_kind = kind;
  model.policy_rules = std::move(rules);
  model.splitwise =
      kind == dispatch::PolicyKind::kSplitwise ? static_cast<dispatch::SplitwisePolicy*>(model.policy.get()) : nullptr;
  return true;
}

void Router::ChainSlot::follow(const dispatch::Chain& chain, const dispatch::ModelRoute& its_route) {
  next_hops = fmt::format("{}", fmt::join(chain.hops.begin() + 1, chain.hops.end(), ","));
  token = chain.token;
  role = chain.role;
  service_rate_per_s = chain.service_rate_per_s;
  capacity = chain.capacity;
  draining = chain.draining;
  share = chain.share;
  packing.reset();
  if (chain.latency >= 0 && chain.share > 0)
    packing = dispatch::shared(its_route.latencies.at(static_cast<std::size_t>(chain.latency)), std::min(1.0, chain.share));
  listed = true;
}

void Router::Model::limit_guesses_to(const dispatch::PackingModel& packing) {
  const double room = packing.kv_capacity_tokens - packing.kv_request_tokens;
  if (packing.kv_capacity_tokens > 0 && room < max_input_tokens) max_input_tokens = std::max(1, static_cast<int>(room));
}

void Router::Model::set_turns(const dispatch::ModelRoute& new_route, const std::vector<std::size_t>& index_of) {
  std::vector<ChainTurns::Weight> of_prefill;
  for (std::size_t k = 0; k < new_route.chains.size(); ++k) {
    if (new_route.chains[k].hops.empty()) continue;
    std::vector<ChainTurns::Weight> weights;
    double together = 0;
    for (const dispatch::DecodeWeight& one : new_route.chains[k].decode_weights) {
      const auto to = static_cast<std::size_t>(one.chain);
      const bool there = to < new_route.chains.size() && !new_route.chains[to].hops.empty();
      if (!there || new_route.chains[to].role != dispatch::Role::kDecode || !(one.weight > 0)) continue;
      weights.push_back({slots[index_of[to]]->key, index_of[to], one.weight});
      together += one.weight;
    }
    ChainSlot& slot = *slots[index_of[k]];
    slot.decode_turns.set(weights);
    if (together > 0) of_prefill.push_back({slot.key, index_of[k], together});
  }
  prefill_turns.set(of_prefill);
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
      if (contact == Contact::kAnswers) slot->own_role_until_s = 0;  // it may be another version now
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

// Called when the set of chains that can begin a request changed.
void Router::roles_changed(Model& model) {
  for (const auto& slot : model.slots) {
    if (!model.can_begin_at(*slot)) empty_queue_of(model, *slot);
    model.tell(*slot);
  }
}

// The results of first steps at a lost worker are gone; their requests continue without them.
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
