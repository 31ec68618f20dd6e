// A model's bookkeeping: what policies see, and which chains can begin a request.
#include "gateway/router_state.h"

namespace windlass::gateway {

dispatch::PolicyRules Router::Model::rules() const {
  bool unified = false, prefill = false;
  for (const auto& slot : slots) {
    unified = unified || (slot->listed && slot->role == dispatch::Role::kUnified);
    prefill = prefill || (slot->listed && slot->role == dispatch::Role::kPrefill);
  }
  const auto phase = prefill && !unified ? dispatch::PackingPhase::kPrefill : dispatch::PackingPhase::kBoth;
  return dispatch::rules_of(route.dispatch, route.ttft_slo_s, route.tpot_slo_s, phase);
}

bool Router::Model::can_begin_at(const ChainSlot& slot) const {
  if (splitwise != nullptr) return decode_serves || slot.role != dispatch::Role::kPrefill || slot.own_role_until_s == 0;
  switch (slot.role) {
    case dispatch::Role::kUnified: return true;
    case dispatch::Role::kPrefill: return decode_serves;
    case dispatch::Role::kDecode: return !prefill_serves;
  }
  return false;
}

bool Router::Model::serves() const {
  return std::any_of(slots.begin(), slots.end(), [this](const auto& slot) { return slot->serves() && can_begin_at(*slot); });
}

bool Router::Model::started() const {
  return std::any_of(slots.begin(), slots.end(), [](const auto& slot) {
    return slot->listed && !slot->draining && slot->role != dispatch::Role::kPrefill;
  });
}

double Router::Model::rate_per_s() const {
  double whole = 0, prefill = 0, decode = 0;
  for (const auto& slot : slots) {
    if (!slot->serves()) continue;
    double& rate = slot->role == dispatch::Role::kUnified ? whole : slot->role == dispatch::Role::kPrefill ? prefill : decode;
    rate += slot->capacity * slot->service_rate_per_s;
  }
  return whole + (prefill_serves ? std::min(prefill, decode) : decode);
}

bool Router::Model::any_serves(dispatch::Role role) const {
  return std::any_of(slots.begin(), slots.end(), [role](const auto& slot) { return slot->role == role && slot->serves(); });
}

bool Router::Model::refresh_roles() {
  const bool prefill_before = std::exchange(prefill_serves, any_serves(dispatch::Role::kPrefill));
  const bool decode_before = std::exchange(decode_serves, any_serves(dispatch::Role::kDecode));
  decode_listed = std::any_of(slots.begin(), slots.end(), [](const auto& slot) {
    return slot->listed && !slot->draining && slot->role == dispatch::Role::kDecode;
  });
  return prefill_before != prefill_serves || decode_before != decode_serves;
}

dispatch::ChainState Router::Model::state_of(const ChainSlot& slot) const {
  return {slot.service_rate_per_s,
          slot.capacity,
          slot.in_flight + static_cast<int>(slot.waiting.size()),
          slot.draining || slot.blocked_until_s > 0 || slot.contact != Contact::kAnswers || !can_begin_at(slot),
          slot.key,
          slot.packing ? &*slot.packing : nullptr,
          0,
          slot.role,
          slot.share,
          slot.own_role_until_s > 0};
}

// The slot's own queue does not count, because second steps go first.
dispatch::ChainState Router::Model::decode_state_of(const ChainSlot& slot) {
  const bool takes = slot.role == dispatch::Role::kDecode && slot.open();
  return {slot.service_rate_per_s, slot.capacity, slot.in_flight, !takes, slot.key};
}

void Router::Model::tell(const ChainSlot& slot) {
  if (!slot.listed) return;
  policy->update(slot.index, state_of(slot));
  if (slot.role == dispatch::Role::kDecode) decode_policy.update(slot.index, decode_state_of(slot));
}

Step Router::Model::first_step_at(const ChainSlot& slot, RequestId id) const {
  const bool whole = slot.role != dispatch::Role::kPrefill || (splitwise != nullptr && splitwise->stays(id));
  return whole ? Step::kWhole : Step::kPrefill;
}

// JFFC does not order equals. Always taking the first in the table would make that machine send requests to others while they
// are idle. The same goes for a machine whose own decode chains are full.
std::size_t Router::Model::choose_prefill(std::size_t chosen) {
  const ChainSlot& best = *slots[chosen];
  if (best.role != dispatch::Role::kPrefill) return chosen;
  const auto equal = [&](std::size_t index) {
    const ChainSlot& slot = *slots[index];
    return slot.has_free_slot() && slot.service_rate_per_s == best.service_rate_per_s &&
           std::int64_t{slot.in_flight} * best.capacity == std::int64_t{best.in_flight} * slot.capacity;
  };
  const auto free = [this](std::size_t index) { return slots[index]->has_free_slot(); };
  std::optional<std::size_t> turn;
  if (decode_policy.choose()) {  // any chain is free
    turn = prefill_turns.next([&](std::size_t index) { return equal(index) && slots[index]->decode_turns.any(free); });
  }
  if (!turn) turn = prefill_turns.next(equal);
  return turn.value_or(chosen);
}

// A full chain's share goes to the other chains with weights; when all of these are full, it goes to the fastest chain. So no
// slot stays free while a request waits for one.
std::size_t Router::Model::choose_decode(const Request& request, std::size_t fastest) {
  if (request.prefill == nullptr || !request.prefill->listed) return fastest;
  return request.prefill->decode_turns.next([this](std::size_t index) { return slots[index]->has_free_slot(); })
      .value_or(fastest);
}

void Router::Model::start_over() {
  std::vector<dispatch::ChainState> states, decode_states;  // one for each listed slot; listed slots come first
  bool decodes = false;
  blocked.clear();
  for (const auto& slot : slots) {
    if (!slot->listed) break;
    slot->index = states.size();
    states.push_back(state_of(*slot));
    decodes = decodes || slot->role == dispatch::Role::kDecode;
    if (slot->blocked_until_s > 0 || slot->own_role_until_s > 0) blocked.push_back(slot);
  }
  policy->reset(states);
  if (!decodes) return;
  for (std::size_t index = 0; index < states.size(); ++index) decode_states.push_back(decode_state_of(*slots[index]));
  decode_policy.reset(decode_states);
}

void Router::Model::unblock_waited_out(double now_s) {
  std::erase_if(blocked, [&](const auto& slot) {
    for (double* const until_s : {&slot->blocked_until_s, &slot->own_role_until_s}) {
      if (*until_s <= now_s) *until_s = 0;
    }
    tell(*slot);
    return slot->blocked_until_s == 0 && slot->own_role_until_s == 0;
  });
}

}  // namespace windlass::gateway
