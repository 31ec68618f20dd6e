// The router's slots: gives free slots to waiting requests and takes them back. Only send() fills a slot, and only release()
// frees one.
#include "gateway/router_state.h"

namespace windlass::gateway {
namespace {

constexpr double kMaxBackoffS = 2.0;
constexpr double kOwnRoleS = 60;  // then a worker that refused a phase of the other role is asked again
constexpr double kNobodyWaits = std::numeric_limits<double>::infinity();  // deadline for the next token of a prompt's worker

double backoff_s(Refusal why, int refusals) {
  const double base_s = why == Refusal::kFull || why == Refusal::kRole ? 0.05 : why == Refusal::kConnect ? 0.1 : 1.0;
  return std::min(kMaxBackoffS, base_s * std::pow(2.0, std::min(refusals - 1, 10)));
}

}  // namespace

// Puts the request into the line of its step, at its place by arrival.
void Router::wait(Model& model, RequestId id) {
  const Request& request = requests_.at(id);
  const double ttft_s = request.objective.ttft_s;
  auto& line = request.prefilled ? model.decode_waiting : model.waiting;
  line.join(request.sequence, id, ttft_s > 0 ? request.record.arrived_s + ttft_s : std::numeric_limits<double>::infinity());
}

// An estimate must not refuse a request: it never exceeds what an empty chain accepts.
dispatch::RequestLengths Router::lengths_of(const Model& model, RequestId id) const {
  return {id, std::min(model.max_input_tokens, model.tokens_per_byte.tokens_of(requests_.at(id).body_bytes)), 0};
}

// A policy that places by lengths assumes that the request's prompt, begun at this time, takes as long as it would alone. For
// requests whose first token is not visible here.
void Router::expect_prompt_through(Model& model, const ChainSlot& slot, RequestId id, double begun_s) {
  if (!slot.packing || model.tracker() == nullptr || model.splitwise != nullptr) return;
  const double prompt_s = slot.packing->prefill_s + slot.packing->prefill_token_s * lengths_of(model, id).input_tokens;
  model.prompts_through.emplace(begun_s + prompt_s, id);
}

// The same for Splitwise's policy, which follows both steps.
void Router::place_both_steps_again(Model& model) {
  dispatch::SplitwisePolicy& policy = *model.splitwise;
  for (const auto& [id, request] : requests_) {
    if (request.record.model != model.route.served_name) continue;
    const dispatch::RequestLengths lengths = lengths_of(model, id);
    const bool decodes = request.slot != nullptr && request.slot->listed;
    if (request.prefill != nullptr && request.prefill->listed) {
      policy.placed(request.prefill->index, lengths);
      if (request.prefilled) policy.begun(id);
      if (decodes) policy.answers_at(request.slot->index, id);
    } else if (decodes) {
      policy.stays_at(request.slot->index, lengths);
      if (request.prefilled || request.record.first_token_s.has_value()) policy.first_token(id, 0);
    }
  }
}

// Reports to a new policy every request in flight at the model's listed chains.
void Router::place_again(Model& model) {
  auto* const tracker = model.tracker();
  if (tracker == nullptr) return;
  if (model.splitwise != nullptr) return place_both_steps_again(model);
  for (const auto& [id, request] : requests_) {
    const SlotPtr& slot = request.placed_at();
    if (request.record.model != model.route.served_name || slot == nullptr || !slot->listed) continue;
    tracker->placed(slot->index, lengths_of(model, id));
    const bool visible = request.prefill == nullptr && request.record.streamed;
    if (!visible) expect_prompt_through(model, *slot, id, request.record.dispatched_s.value_or(request.answering_s));
    if (request.prefill != nullptr) continue;
    if (request.record.first_token_s.has_value()) tracker->first_token(id, *request.record.first_token_s);
    if (request.tokens > 1) tracker->tokens_made(id, request.tokens - 1);
  }
}

// Gives waiting requests to chains in order: second steps while a decode chain has a free slot, then new requests until the
// policy says wait.
void Router::pump(double now_s, Model& model, Actions& actions) {
  if (!model.listed || shutting_down_) return;
  model.unblock_waited_out(now_s);
  auto* const tracker = model.tracker();
  auto& through = model.prompts_through;
  for (; !through.empty() && through.begin()->first <= now_s; through.erase(through.begin())) {
    if (tracker != nullptr) tracker->first_token(through.begin()->second, kNobodyWaits);
  }
  serve_decode_line(now_s, model, actions);
  while (!model.waiting.empty()) {
    std::optional<std::size_t> choice;
    dispatch::RequestLengths lengths;
    if (tracker == nullptr) {
      choice = model.policy->choose();
      if (choice && model.policy_kind == dispatch::PolicyKind::kJffc) choice = model.choose_prefill(*choice);
    } else {
      lengths = lengths_of(model, model.waiting.next(now_s, model.margin_s())->id);
      choice = model.policy->choose_for(lengths, now_s);
      model.asked_s = now_s;
    }
    if (!choice.has_value()) return;
    const auto next = *model.waiting.next(now_s, model.margin_s());
    model.waiting.take(next.place);
    if (tracker != nullptr) tracker->placed(*choice, lengths);
    const auto& slot = model.slots[*choice];
    if (slot->in_flight < slot->capacity) {
      send(now_s, model, slot, next.id, actions);
      continue;
    }
    slot->waiting.join(next.place, next.id, next.deadline_s);
    ++model.waiting_at_chains;
    requests_.at(next.id).queued_at = slot;
    model.tell(*slot);
  }
}

void Router::serve_decode_line(double now_s, Model& model, Actions& actions) {
  if (shutting_down_) return;
  const auto is_free = [&model](std::size_t index) { return model.slots[index]->has_free_slot(); };
  while (!model.decode_waiting.empty()) {
    const auto next = *model.decode_waiting.next(now_s, model.decode_margin_s());
    std::optional<std::size_t> choice;
    if (model.splitwise != nullptr) {
      choice = model.splitwise->second_step(lengths_of(model, next.id), is_free);
    } else if (const auto fastest = model.decode_policy.choose()) {
      choice = model.choose_decode(requests_.at(next.id), *fastest);
    }
    if (!choice.has_value()) return;
    model.decode_waiting.take(next.place);
    send(now_s, model, model.slots[*choice], next.id, actions);
  }
}

// Gives the slots of a chain to the requests in its own queue, in order.
void Router::serve_queue_of(double now_s, Model& model, const SlotPtr& slot, Actions& actions) {
  if (!slot->open() || shutting_down_) return;
  while (!slot->waiting.empty() && slot->in_flight < slot->capacity) {
    const auto next = *slot->waiting.next(now_s, model.margin_s());
    slot->waiting.take(next.place);
    --model.waiting_at_chains;
    send(now_s, model, slot, next.id, actions);
  }
}

void Router::send(double now_s, Model& model, const SlotPtr& slot, RequestId id, Actions& actions) {
  Request& request = requests_.at(id);
  const bool begins = !request.prefilled;
  const Step step = begins ? model.first_step_at(*slot, id) : Step::kDecode;
  (step == Step::kPrefill ? request.prefill : request.slot) = slot;
  request.queued_at.reset();
  ++slot->in_flight;
  model.tell(*slot);
  request.record.chain = slot->id;
  request.answering_s = now_s;
  if (begins) request.record.dispatched_s = now_s;
  set_deadline(id, request, request.record.arrived_s + options_.request_timeout_s);
  if (begins && (step == Step::kPrefill || !request.record.streamed)) expect_prompt_through(model, *slot, id, now_s);
  if (step == Step::kPrefill) request.prefill_address = slot->address;
  const bool other_role = slot->role == dispatch::Role::kPrefill && step != Step::kPrefill;
  if (model.splitwise != nullptr) {
    if (step == Step::kWhole && !model.splitwise->stays(id)) model.splitwise->stays_at(slot->index, lengths_of(model, id));
    if (other_role || (begins && slot->role == dispatch::Role::kDecode)) request.record.mixed_pool = true;
  }
  request.other_role = other_role;
  actions.push_back(Dispatch{id, slot->id, slot->address, step, other_role,
                             step == Step::kDecode ? request.prefill_address : std::string(), slot->next_hops, slot->token});
}

void Router::set_deadline(RequestId id, Request& request, double deadline_s) {
  deadlines_.erase(request.deadline);
  request.deadline = deadlines_.emplace(deadline_s, id);
}

// Moves the chain's own queue back to the model's. The caller updates the policy, and pumps.
void Router::empty_queue_of(Model& model, ChainSlot& slot) {
  model.waiting_at_chains -= slot.waiting.size();
  for (const auto& waiting : slot.waiting.take_all()) {
    if (auto* const tracker = model.tracker()) tracker->ended(waiting.id, 0);
    requests_.at(waiting.id).queued_at.reset();
    model.waiting.join(waiting.place, waiting.id, waiting.deadline_s);
  }
}

// Sends no new request there for a moment, longer with every refusal in a row; or, if the worker refused a phase of the other
// role for its own, no other such phase for a while. The caller updates the policy, and pumps.
void Router::block(double now_s, const SlotPtr& slot, const std::string& model, Refusal why, bool other_role) {
  const bool was_blocked = slot->blocked_until_s > 0 || slot->own_role_until_s > 0;
  if (why == Refusal::kRole && other_role) {
    slot->own_role_until_s = now_s + kOwnRoleS;
  } else {
    ++slot->refusals;
    slot->refused_for = why;
    slot->blocked_until_s = now_s + backoff_s(why, slot->refusals);
  }
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second->listed) return;
  if (slot->listed && !was_blocked) found->second->blocked.push_back(slot);
  empty_queue_of(*found->second, *slot);
}

// Takes a request from the worker that has its current step, back to its old place in the line for that step.
void Router::wait_again(double now_s, RequestId id, double deadline_s, Actions& actions) {
  Request& request = requests_.at(id);
  const std::string name = request.record.model;
  const SlotPtr prefill = request.prefill;
  request.record.mixed_pool = false;  // the first step of a request with two is never the mixed pool's
  request.wait_until_s = deadline_s;
  set_deadline(id, request, deadline_s);
  if (request.prefilled) {
    release(request, request.slot);
  } else {
    request.record.chain.clear();
    request.record.dispatched_s.reset();
    release_all(id, request, 0);
  }
  const auto found = models_.find(name);
  if (found == models_.end() || !found->second->listed) {
    reject_unserved(now_s, id, actions);
    return;
  }
  Model& model = *found->second;
  std::vector<SlotPtr> freed;
  if (request.prefilled && !model.decode_listed) {
    if (prefill != nullptr) freed.push_back(prefill);
    restart(now_s, model, id, actions);
  } else {
    (request.prefilled ? model.decode_waiting : model.waiting).give_back();  // its turn was lost
    wait(model, id);
  }
  slots_freed(now_s, name, freed, actions);
}

// Discards the first step: the request returns to its old place in the first line. The caller has removed it from the second
// line, and calls slots_freed() for the prefill chain's slot.
void Router::restart(double now_s, Model& model, RequestId id, Actions& actions) {
  Request& request = requests_.at(id);
  actions.push_back(Recall{id, true});
  release_prefill(id, request);
  if (auto* const tracker = model.tracker()) tracker->ended(id, 0);
  request.prefilled = false;
  request.record.chain.clear();
  request.record.dispatched_s.reset();
  request.wait_until_s = wait_limit_s(now_s, !model.started(), request);
  set_deadline(id, request, request.wait_until_s);
  wait(model, id);
}

// Releases the slot, if it has one. The caller then serves waiting requests, with slots_freed() or directly.
void Router::release(Request& request, SlotPtr& held) {
  if (held == nullptr) return;
  const SlotPtr slot = std::exchange(held, nullptr);
  --slot->in_flight;
  const auto model = models_.find(request.record.model);
  if (model != models_.end()) model->second->tell(*slot);
}

void Router::release_prefill(RequestId id, Request& request) {
  if (request.prefill == nullptr) return;
  const auto model = models_.find(request.record.model);
  if (model != models_.end() && model->second->splitwise != nullptr) {
    model->second->splitwise->first_token(id, 0);  // its second step goes on
  } else if (model != models_.end() && model->second->tracker() != nullptr) {
    model->second->tracker()->ended(id, 0);
  }
  release(request, request.prefill);
}

// Releases all its slots, or removes it from the line in which it waits.
void Router::release_all(RequestId id, Request& request, int output_tokens) {
  const auto found = models_.find(request.record.model);
  Model* const model = found == models_.end() ? nullptr : found->second.get();
  const bool waits = request.at() == nullptr;
  release_prefill(id, request);
  if (model != nullptr && model->tracker() != nullptr) model->tracker()->ended(id, output_tokens);
  release(request, request.slot);
  if (!waits || model == nullptr) return;
  if (request.queued_at != nullptr) {
    const SlotPtr slot = std::exchange(request.queued_at, nullptr);
    slot->waiting.leave(request.sequence);
    --model->waiting_at_chains;
    model->tell(*slot);
  } else {
    (request.prefilled ? model->decode_waiting : model->waiting).leave(request.sequence);
  }
}

// Gives the free slots of these chains to waiting requests. A model that left the table is dropped with the last of its slots.
void Router::slots_freed(double now_s, const std::string& name, const std::vector<SlotPtr>& slots, Actions& actions) {
  const auto found = models_.find(name);
  if (found == models_.end()) return;
  Model& model = *found->second;
  model.drop_empty();
  if (!model.listed) {
    if (model.slots.empty() && model.waiting.empty() && model.decode_waiting.empty()) models_.erase(found);
    return;
  }
  serve_decode_line(now_s, model, actions);
  for (const SlotPtr& slot : slots) serve_queue_of(now_s, model, slot, actions);
  pump(now_s, model, actions);
}

}  // namespace windlass::gateway
