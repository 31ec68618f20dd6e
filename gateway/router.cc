// Handles the events of requests. All requests end in one place (finish).
#include "gateway/router.h"

#include <cassert>

#include <fmt/format.h>

#include "gateway/router_state.h"

namespace windlass::gateway {
namespace {

constexpr int kRetryAfterNoWorkerS = 5;
constexpr int kMaxRetryAfterS = 60;
constexpr int kMaxStartRetryAfterS = 600;
constexpr double kPlacementRetryS = 0.02;  // what fits changes with every token and with time
constexpr const char* kShuttingDown = "The gateway is shutting down.";

}  // namespace

Router::Router(RouterOptions options) : options_(options) {}
Router::~Router() = default;

Actions Router::arrived(double now_s, RequestId id, const std::string& name, bool streamed, std::size_t body_bytes) {
  assert(!requests_.contains(id));
  Actions actions;
  Request& request = requests_[id];
  request.sequence = next_sequence_++;
  request.record.model = name;
  request.record.streamed = streamed;
  request.record.arrived_s = now_s;
  request.body_bytes = body_bytes;
  const auto found = models_.find(name);
  request.known_model = found != models_.end() && found->second->listed;
  const bool from_nothing = request.known_model && !found->second->started();
  request.wait_until_s = wait_limit_s(now_s, from_nothing, request);
  request.deadline = deadlines_.emplace(request.wait_until_s, id);
  if (shutting_down_) {
    reject(now_s, id, Reject{id, 503, "shutting_down", kShuttingDown, 1}, actions);
    return actions;
  }
  if (!has_table_) {
    reject(now_s, id,
           Reject{id, 503, "no_routing_table", "The gateway has not heard from a controller yet.", kRetryAfterNoWorkerS},
           actions);
    return actions;
  }
  if (!request.known_model) {
    reject(now_s, id, Reject{id, 404, "model_not_found", fmt::format("The model '{}' does not exist.", name), 0}, actions);
    return actions;
  }
  Model& model = *found->second;
  request.objective = Objective{model.route.ttft_slo_s, model.route.tpot_slo_s};
  const auto waiting_before = model.total_waiting();
  wait(model, id);
  pump(now_s, model, actions);
  const auto limit = static_cast<std::size_t>(std::max(0, std::min(options_.max_queued, model.route.max_queued)));
  if (requests_.contains(id) && request.at() == nullptr && waiting_before >= limit) {
    reject(now_s, id,
           Reject{id, 429, "queue_full",
                  fmt::format("{} requests for the model '{}' are already waiting; at most {} may wait.", waiting_before, name,
                              limit),
                  retry_after_s(now_s, model)},
           actions);
  }
  return actions;
}

Actions Router::refused(double now_s, RequestId id, Refusal why) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.at() == nullptr) return {};
  Actions actions;
  Request& request = found->second;
  block(now_s, request.at(), request.record.model, why, request.other_role);
  wait_again(now_s, id, request.wait_until_s, actions);
  return actions;
}

Actions Router::accepted(double now_s, RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.at() == nullptr) return {};
  Actions actions;
  const SlotPtr slot = found->second.at();
  // A draining worker finishes its current requests and takes no more.
  if (slot->blocked_until_s > 0 && slot->refused_for == Refusal::kDraining) return {};
  slot->refusals = 0;
  if (std::exchange(slot->blocked_until_s, 0) > 0) slots_freed(now_s, found->second.record.model, {slot}, actions);
  return actions;
}

Actions Router::prefilled(double now_s, RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.prefilled || found->second.prefill == nullptr) return {};
  Actions actions = accepted(now_s, id);
  Request& request = found->second;
  request.prefilled = true;
  const std::string name = request.record.model;
  const auto model = models_.find(name);
  if (model != models_.end() && model->second->splitwise != nullptr) model->second->splitwise->begun(id);
  if (model == models_.end() || !model->second->listed) {
    reject_unserved(now_s, id, actions);
    return actions;
  }
  std::vector<SlotPtr> freed;
  if (model->second->decode_listed) {
    request.wait_until_s = wait_limit_s(now_s, false, request);
    set_deadline(id, request, request.wait_until_s);
    wait(*model->second, id);
  } else {
    freed.push_back(request.prefill);
    restart(now_s, *model->second, id, actions);
  }
  slots_freed(now_s, name, freed, actions);
  return actions;
}

Actions Router::prefill_ended(double now_s, RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.prefilled || found->second.prefill == nullptr) return {};
  Actions actions;
  Request& request = found->second;
  const SlotPtr slot = request.prefill;
  release_prefill(id, request);
  slots_freed(now_s, request.record.model, {slot}, actions);
  return actions;
}

void Router::response_started(RequestId id) {
  const auto found = requests_.find(id);
  if (found != requests_.end()) found->second.response_started = true;
}

void Router::tokens_sent(double now_s, RequestId id, int count) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || count <= 0) return;
  Request& request = found->second;
  const auto model = models_.find(request.record.model);
  // A policy that places by lengths tracks only the first of two steps, but for Splitwise's.
  const bool tracks = model != models_.end() && (!request.prefilled || model->second->splitwise != nullptr);
  auto* const tracker = tracks ? model->second->tracker() : nullptr;
  int after_first = count;
  if (!request.record.first_token_s.has_value()) {
    request.record.first_token_s = now_s;
    if (model != models_.end() && request.record.dispatched_s.has_value()) {
      model->second->first_token.observe(now_s - *request.record.dispatched_s);
      if (request.prefilled) model->second->decode_first_token.observe(now_s - request.answering_s);
    }
    if (tracker != nullptr) tracker->first_token(id, now_s);
    --after_first;
  }
  if (tracker != nullptr && after_first > 0) tracker->tokens_made(id, after_first);
  request.record.last_token_s = now_s;
  request.tokens += count;
}

Actions Router::completed(double now_s, RequestId id, const Completion& completion) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return {};
  Actions actions;
  if (const auto model = models_.find(found->second.record.model); model != models_.end()) {
    model->second->tokens_per_byte.observe(found->second.body_bytes, completion.prompt_tokens);
  }
  found->second.record.prompt_tokens = completion.prompt_tokens;
  found->second.record.generation_tokens = completion.generation_tokens;
  finish(now_s, id, completion.code, actions);
  return actions;
}

Actions Router::failed(double now_s, RequestId id, const std::string& message, bool may_move) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return {};
  Actions actions;
  Request& request = found->second;
  const SlotPtr slot = request.at();
  if (may_move && !request.response_started && !request.moved && slot != nullptr && !shutting_down_) {
    request.moved = true;
    block(now_s, slot, request.record.model, Refusal::kConnect, false);
    wait_again(now_s, id, wait_limit_s(now_s, false, request), actions);
    return actions;
  }
  reject(now_s, id, Reject{id, 502, "worker_failed", message, 0}, actions);
  return actions;
}

Actions Router::client_gone(double now_s, RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return {};
  Actions actions;
  finish(now_s, id, kClientGone, actions);
  return actions;
}

Actions Router::tick(double now_s) {
  Actions actions;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_s) time_out(now_s, deadlines_.begin()->second, actions);
  for (auto& [name, model] : models_) pump(now_s, *model, actions);
  return actions;
}

Actions Router::shut_down(double now_s) {
  Actions actions;
  shutting_down_ = true;
  while (!requests_.empty()) {
    const RequestId id = requests_.begin()->first;
    reject(now_s, id, Reject{id, 503, "shutting_down", kShuttingDown, 1}, actions);
  }
  return actions;
}

std::optional<double> Router::next_deadline_s() const {
  std::optional<double> next;
  const auto earlier = [&next](double t) { next = next.has_value() ? std::min(*next, t) : t; };
  if (!deadlines_.empty()) earlier(deadlines_.begin()->first);
  for (const auto& [name, model] : models_) {
    if (model->waiting.empty() && model->decode_waiting.empty()) continue;
    for (const auto& slot : model->slots) {
      // Wake up only for chains that keep a free slot: because they are blocked, or because nothing fits yet.
      if (!slot->serves() || slot->in_flight >= slot->capacity) continue;
      const bool begins = !model->waiting.empty() && model->can_begin_at(*slot);
      const bool may_decode = slot->role == dispatch::Role::kDecode || model->splitwise != nullptr;
      const bool decodes = !model->decode_waiting.empty() && may_decode;
      if (slot->blocked_until_s > 0) {
        if (begins || decodes) earlier(slot->blocked_until_s);
      } else if (model->splitwise != nullptr && slot->own_role_until_s > 0) {
        earlier(slot->own_role_until_s);
      } else if (begins && model->tracker() != nullptr) {
        earlier(model->asked_s + kPlacementRetryS);
      }
    }
  }
  return next;
}

std::set<std::string> Router::addresses() const {
  std::set<std::string> all;
  for (const auto& [name, model] : models_) {
    for (const auto& slot : model->slots) all.insert(slot->address);
  }
  return all;
}

std::map<std::string, int> Router::silent_chains() const {
  std::map<std::string, int> counts;
  for (const auto& [name, model] : models_) {
    if (!model->listed) continue;
    counts[name] = static_cast<int>(std::count_if(model->slots.begin(), model->slots.end(), [](const auto& slot) {
      return slot->listed && !slot->draining && slot->contact != Contact::kAnswers;
    }));
  }
  return counts;
}

bool Router::at_leaving_worker(RequestId id) const {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.at() == nullptr) return false;
  const ChainSlot& slot = *found->second.at();
  return slot.draining || !slot.listed;
}

std::vector<Router::ChainLoad> Router::chain_loads() const {
  std::vector<ChainLoad> loads;
  for (const auto& [name, model] : models_) {
    const auto begin = static_cast<std::ptrdiff_t>(loads.size());
    for (const auto& slot : model->slots) {
      loads.push_back({name, slot->id, slot->in_flight, slot->capacity, slot->draining || !slot->listed || !model->listed});
    }
    std::stable_sort(loads.begin() + begin, loads.end(), [](const auto& a, const auto& b) { return a.chain < b.chain; });
  }
  return loads;
}

std::map<std::string, std::int64_t> Router::rebalanced() const {
  std::map<std::string, std::int64_t> counts;
  for (const auto& [name, model] : models_) {
    if (model->listed) counts.emplace(name, model->rebalanced());
  }
  return counts;
}

std::map<std::string, dispatch::PolicyKind> Router::policies() const {
  std::map<std::string, dispatch::PolicyKind> kinds;
  for (const auto& [name, model] : models_) {
    if (model->listed) kinds.emplace(name, model->policy_kind);
  }
  return kinds;
}

std::map<std::string, int> Router::mixed_pools() const {
  std::map<std::string, int> counts;
  for (const auto& [name, model] : models_) {
    if (model->listed && model->splitwise != nullptr) counts.emplace(name, model->splitwise->mixed_chains());
  }
  return counts;
}

std::map<std::string, int> Router::queue_lengths() const {
  std::map<std::string, int> lengths;
  for (const auto& [name, model] : models_) {
    if (model->listed) lengths.emplace(name, static_cast<int>(model->total_waiting()));
  }
  return lengths;
}

std::map<std::string, int> Router::decode_queue_lengths() const {
  std::map<std::string, int> lengths;
  for (const auto& [name, model] : models_) {
    const bool decodes = std::any_of(model->slots.begin(), model->slots.end(),
                                     [](const auto& slot) { return slot->listed && slot->role == dispatch::Role::kDecode; });
    if (model->listed && decodes) lengths.emplace(name, static_cast<int>(model->decode_waiting.size()));
  }
  return lengths;
}

// Deadline for a worker to take its step.
double Router::wait_limit_s(double now_s, bool from_nothing, const Request& request) const {
  const double wait_s = from_nothing ? std::max(options_.queue_timeout_s, options_.start_timeout_s) : options_.queue_timeout_s;
  return std::min(now_s + wait_s, request.record.arrived_s + options_.request_timeout_s);
}

// Estimates how long the queue takes to drain at the chains' rates, or the first worker to start.
int Router::retry_after_s(double now_s, const Model& model) const {
  if (const double rate_per_s = model.rate_per_s(); rate_per_s > 0) {
    return static_cast<int>(std::clamp(std::ceil((static_cast<double>(model.total_waiting()) + 1) / rate_per_s), 1.0,
                                       static_cast<double>(kMaxRetryAfterS)));
  }
  if (model.started() || !(model.route.expected_start_s > 0)) return kRetryAfterNoWorkerS;
  const double left_s = model.route.expected_start_s - (now_s - table_received_s_);
  return static_cast<int>(std::clamp(std::ceil(left_s), 1.0, static_cast<double>(kMaxStartRetryAfterS)));
}

void Router::time_out(double now_s, RequestId id, Actions& actions) {
  Request& request = requests_.at(id);
  if (request.at() != nullptr) {
    const std::string message = fmt::format("The request took longer than {} s.", options_.request_timeout_s);
    reject(now_s, id, Reject{id, 504, "request_timeout", message, 0}, actions);
    return;
  }
  const Model& model = *models_.at(request.record.model);
  const dispatch::WaitingLine& line = request.queued_at != nullptr ? request.queued_at->waiting
                                      : request.prefilled          ? model.decode_waiting
                                                                   : model.waiting;
  const double limit_s = request.record.arrived_s + options_.request_timeout_s;
  if (line.overtaken(request.sequence) && now_s < limit_s) {
    // In arrival order its turn has come, but requests that can still meet their objective went first: do not refuse it for
    // that.
    request.wait_until_s = limit_s;
    set_deadline(id, request, limit_s);
    return;
  }
  const bool serves = request.prefilled ? model.decode_serves : model.serves();
  const std::string what = serves ? "No slot became free" : model.started() ? "No worker answers" : "No worker is ready";
  reject(now_s, id,
         Reject{id, 503, serves ? "queue_timeout" : "no_worker",
                fmt::format("{} for the model '{}' within {:.0f} s.", what, request.record.model,
                            now_s - request.record.arrived_s),
                retry_after_s(now_s, model)},
         actions);
}

// Cancels it at its workers. A stream that the client has begun to read ends with the same error.
void Router::reject(double now_s, RequestId id, Reject rejection, Actions& actions) {
  const Request& request = requests_.at(id);
  const int status = rejection.status;
  const bool nothing_sent = !request.response_started;
  if (request.prefill != nullptr || request.slot != nullptr) {
    actions.emplace_back(std::in_place_type<Cancel>, id, status, nothing_sent, rejection.message);
  }
  if (nothing_sent) actions.emplace_back(std::in_place_type<Reject>, std::move(rejection));
  finish(now_s, id, status, actions);
}

void Router::reject_unserved(double now_s, RequestId id, Actions& actions) {
  const std::string message = fmt::format("The model '{}' is no longer served.", requests_.at(id).record.model);
  reject(now_s, id, Reject{id, 404, "model_not_found", message, 0}, actions);
}

void Router::finish(double now_s, RequestId id, int code, Actions& actions) {
  const auto found = requests_.find(id);
  Request& request = found->second;
  deadlines_.erase(request.deadline);
  std::vector<SlotPtr> freed;
  if (request.prefill != nullptr) freed.push_back(request.prefill);
  if (request.slot != nullptr) freed.push_back(request.slot);
  if (request.record.generation_tokens < 0 && request.record.streamed) request.record.generation_tokens = request.tokens;
  release_all(id, request, code == 200 ? std::max(0, request.record.generation_tokens) : 0);
  request.record.code = code;
  request.record.finished_s = now_s;
  const Verdict verdict = judge(request.record, request.objective);
  const std::string name = request.record.model;
  actions.push_back(Finished{id, std::move(request.record), verdict, request.known_model});
  requests_.erase(found);
  slots_freed(now_s, name, freed, actions);
}

}  // namespace windlass::gateway
