// The router's book-keeping. One place frees slots (release), one ends requests (finish), one fills slots (send).
//
// A model's policy knows its listed slots by their place in the list. It is told of every change of one (Model::tell), and
// starts over with every table.
#include "gateway/router.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

namespace windlass::gateway {
namespace {

constexpr double kMaxBackoffS = 2.0;
constexpr int kRetryAfterNoWorkerS = 5;
constexpr int kMaxRetryAfterS = 60;
constexpr int kMaxStartRetryAfterS = 600;
constexpr double kPlacementRetryS = 0.02;                                 // what fits changes with every token, and with time
constexpr double kNobodyWaits = std::numeric_limits<double>::infinity();  // for the next token: the answer is not streamed
constexpr const char* kShuttingDown = "The gateway is shutting down.";

double backoff_s(Refusal why, int refusals) {
  const double base_s = why == Refusal::kFull ? 0.05 : why == Refusal::kConnect ? 0.1 : 1.0;
  return std::min(kMaxBackoffS, base_s * std::pow(2.0, std::min(refusals - 1, 10)));
}

// Prompt tokens of a request, guessed from its size by what workers have said of others; the last hundred or so count.
class TokensPerByte {
 public:
  void observe(std::size_t bytes, int tokens) {
    if (bytes == 0 || tokens <= 0) return;
    bytes_ = kMemory * bytes_ + static_cast<double>(bytes);
    tokens_ = kMemory * tokens_ + tokens;
  }
  // 0: not known.
  [[nodiscard]] int tokens_of(std::size_t bytes) const {
    if (bytes == 0 || bytes_ <= 0) return 0;
    return std::max(1, static_cast<int>(std::lround(std::min(1e9, static_cast<double>(bytes) * tokens_ / bytes_))));
  }

 private:
  static constexpr double kMemory = 0.99;
  double bytes_ = 0, tokens_ = 0;
};

}  // namespace

// One chain as we load it. A slot outlives its place in the table while requests are in flight on it, and is found again by
// (id, address) when the table brings it back, so that no request is ever forgotten in the count.
struct Router::ChainSlot {
  explicit ChainSlot(dispatch::QueueOrder order) : waiting(order) {}

  std::size_t index = 0;  // in the model's list, while it is listed
  std::string id;
  std::string address;
  std::uint64_t key = 0;  // a policy's name of it
  double service_rate_per_s = 0;
  int capacity = 0;
  bool draining = false;
  std::optional<dispatch::PackingModel> packing;  // of our share of it
  bool listed = false;
  int in_flight = 0;
  int refusals = 0;            // in a row
  double blocked_until_s = 0;  // it refused us: no new request before this; 0: it may have one
  Contact contact = Contact::kAnswers;
  dispatch::WaitingLine waiting;  // for a slot of this chain; only while it is open

  // In the table, to be sent requests, and there.
  [[nodiscard]] bool serves() const { return listed && !draining && contact == Contact::kAnswers; }
  [[nodiscard]] bool open() const { return serves() && capacity > 0 && blocked_until_s == 0; }
};

struct Router::Model {
  dispatch::ModelRoute route;  // its chains are in `slots`
  bool listed = false;
  std::vector<std::shared_ptr<ChainSlot>> slots;  // listed, in the table's order; then those that still hold requests
  std::unique_ptr<dispatch::DispatchPolicy> policy;
  std::vector<std::shared_ptr<ChainSlot>> blocked;  // listed slots that refused us and are not waited out
  dispatch::WaitingLine waiting;                    // for any chain
  std::size_t waiting_at_chains = 0;                // in the slots' own queues
  dispatch::FirstTokenTail first_token;
  // For a policy that places by lengths.
  TokensPerByte tokens_per_byte;
  std::multimap<double, RequestId> prefilled;  // when the prompts of answers that are not streamed will have been processed
  double asked_s = 0;                          // when it last kept a request back
  int most_input_tokens = 0;                   // that the smallest cache of its chains holds

  [[nodiscard]] dispatch::RequestTracker* tracker() const { return policy->tracker(); }
  [[nodiscard]] dispatch::PackingRules rules() const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    dispatch::PackingRules rules;
    rules.ttft_s = route.ttft_slo_s > 0 ? route.ttft_slo_s : kNone;
    rules.tpot_s = route.tpot_slo_s > 0 ? route.tpot_slo_s : kNone;
    return rules;
  }
  [[nodiscard]] std::size_t total_waiting() const { return waiting.size() + waiting_at_chains; }
  [[nodiscard]] double margin_s() const { return first_token.margin_s(std::max(0.0, route.ttft_slo_s)); }

  [[nodiscard]] static dispatch::ChainState state_of(const ChainSlot& slot) {
    return {slot.service_rate_per_s,
            slot.capacity,
            slot.in_flight + static_cast<int>(slot.waiting.size()),
            slot.draining || slot.blocked_until_s > 0 || slot.contact != Contact::kAnswers,
            slot.key,
            slot.packing ? &*slot.packing : nullptr};
  }
  // Whether any worker is listed that takes requests; else it is started from nothing.
  [[nodiscard]] bool started() const {
    return std::any_of(slots.begin(), slots.end(), [](const auto& slot) { return slot->listed && !slot->draining; });
  }
  // After every change of a slot.
  void tell(const ChainSlot& slot) {
    if (slot.listed) policy->update(slot.index, state_of(slot));
  }
  void start_over() {
    std::vector<dispatch::ChainState> states;  // one for each listed slot; those stand first
    blocked.clear();
    for (const auto& slot : slots) {
      if (!slot->listed) break;
      slot->index = states.size();
      states.push_back(state_of(*slot));
      if (slot->blocked_until_s > 0) blocked.push_back(slot);
    }
    policy->reset(states);
  }
  void unblock_waited_out(double now_s) {
    std::erase_if(blocked, [&](const auto& slot) {
      if (slot->blocked_until_s > now_s) return false;
      slot->blocked_until_s = 0;
      tell(*slot);
      return true;
    });
  }
};

struct Router::Request {
  std::uint64_t sequence = 0;
  RequestRecord record;
  Objective objective;
  std::shared_ptr<ChainSlot> slot;       // null while it waits
  std::shared_ptr<ChainSlot> queued_at;  // the chain in whose queue it waits; null: in the model's
  bool known_model = false;
  bool response_started = false;
  bool moved = false;       // it was taken back from a worker that may have worked on it
  double wait_until_s = 0;  // as long as no worker has taken it
  int tokens = 0;
  std::size_t body_bytes = 0;
  std::multimap<double, RequestId>::iterator deadline;
};

Router::Router(RouterOptions options) : options_(options) {}
Router::~Router() = default;

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
    } else {
      const bool same = model->route.ttft_slo_s == route.ttft_slo_s && model->route.tpot_slo_s == route.tpot_slo_s;
      new_policy = !same && model->tracker() != nullptr;  // it places by them
    }
    model->listed = true;
    model->most_input_tokens = std::numeric_limits<int>::max();
    std::vector<std::shared_ptr<ChainSlot>> slots;
    std::map<std::pair<std::string_view, std::string_view>, std::shared_ptr<ChainSlot>> before;  // a model may have thousands
    for (const auto& slot : model->slots)
      before.emplace(std::pair(std::string_view(slot->id), std::string_view(slot->address)), slot);
    for (const dispatch::Chain& chain : route.chains) {
      // A request enters at a chain that serves it whole; prefill and decode chains are a later issue's.
      if (chain.role != dispatch::Role::kUnified || chain.hops.empty()) continue;
      const auto known = before.find({chain.id, chain.hops.front()});
      auto slot = known == before.end() ? std::make_shared<ChainSlot>(options_.queue_order) : known->second;
      if (known == before.end()) {
        slot->id = chain.id;
        slot->address = chain.hops.front();
        slot->key = ++last_key_;
      }
      slot->service_rate_per_s = chain.service_rate_per_s;
      slot->capacity = chain.capacity;
      slot->draining = chain.draining;
      slot->packing.reset();
      if (chain.latency >= 0 && chain.share > 0) {
        slot->packing =
            dispatch::shared(route.latencies.at(static_cast<std::size_t>(chain.latency)), std::min(1.0, chain.share));
        const double room = slot->packing->kv_capacity_tokens - slot->packing->kv_request_tokens;
        if (slot->packing->kv_capacity_tokens > 0 && room < model->most_input_tokens) {
          model->most_input_tokens = std::max(1, static_cast<int>(room));
        }
      }
      slot->contact = contact_of(slot->address);
      slot->listed = true;
      slots.push_back(std::move(slot));
    }
    for (auto& slot : model->slots) {
      if (!slot->open()) empty_queue_of(*model, *slot);
      if (!slot->listed && slot->in_flight > 0) slots.push_back(slot);
    }
    model->slots = std::move(slots);
    model->route = route;
    model->route.chains.clear();
    if (new_policy) {
      model->policy =
          dispatch::make_policy(options_.policy, Rng(options_.seed, "dispatch of " + route.served_name),
                                dispatch::PolicyRules{model->rules(), {}});
      remade.insert(model.get());
    }
  }
  std::vector<RequestId> orphans;  // ending a request may drop its model, so the walk over models only collects them
  for (auto& [name, model] : models_) {
    if (model->listed) {
      model->start_over();
      if (remade.contains(model.get())) place_again(now_s, *model);
      for (const auto& slot : model->slots) serve_queue_of(now_s, *model, slot, outcome.actions);
      pump(now_s, *model, outcome.actions);
      continue;
    }
    for (const auto& slot : model->slots) empty_queue_of(*model, *slot);
    for (const auto& waiting : model->waiting.all()) orphans.push_back(waiting.id);
  }
  for (const RequestId id : orphans) {
    const std::string message = fmt::format("The model '{}' is no longer served.", requests_.at(id).record.model);
    reject(now_s, id, Reject{id, 404, "model_not_found", message, 0}, outcome.actions);
  }
  std::erase_if(models_, [](const auto& entry) { return !entry.second->listed && entry.second->slots.empty(); });
  return outcome;
}

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
  const double wait_s = from_nothing ? std::max(options_.queue_timeout_s, options_.start_timeout_s) : options_.queue_timeout_s;
  request.wait_until_s = now_s + std::min(wait_s, options_.request_timeout_s);
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
  if (requests_.contains(id) && request.slot == nullptr && waiting_before >= limit) {
    reject(now_s, id,
           Reject{id, 429, "queue_full",
                  fmt::format("{} requests for the model '{}' are waiting, allowed are {}.", waiting_before, name, limit),
                  retry_after_s(now_s, model)},
           actions);
  }
  return actions;
}

Actions Router::refused(double now_s, RequestId id, Refusal why) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.slot == nullptr) return {};
  Actions actions;
  Request& request = found->second;
  block(now_s, request.slot, request.record.model, why);
  wait_again(now_s, id, request.wait_until_s, actions);
  return actions;
}

// No new request goes there for a moment, longer with every time in a row. The caller tells the policy, and pumps.
void Router::block(double now_s, const std::shared_ptr<ChainSlot>& slot, const std::string& model, Refusal why) {
  const bool was_blocked = slot->blocked_until_s > 0;
  ++slot->refusals;
  slot->blocked_until_s = now_s + backoff_s(why, slot->refusals);
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second->listed) return;
  if (slot->listed && !was_blocked) found->second->blocked.push_back(slot);
  empty_queue_of(*found->second, *slot);
}

// From its worker back to its old place in the queue.
void Router::wait_again(double now_s, RequestId id, double deadline_s, Actions& actions) {
  Request& request = requests_.at(id);
  const auto slot = request.slot;
  release(id, request);
  request.record.chain.clear();
  request.record.dispatched_s.reset();
  deadlines_.erase(request.deadline);
  request.deadline = deadlines_.emplace(deadline_s, id);
  request.wait_until_s = deadline_s;
  const auto model = models_.find(request.record.model);
  if (model == models_.end() || !model->second->listed) {
    reject(now_s, id,
           Reject{id, 404, "model_not_found", fmt::format("The model '{}' is no longer served.", request.record.model), 0},
           actions);
    return;
  }
  model->second->waiting.give_back();  // its turn came to nothing
  wait(*model->second, id);
  model->second->tell(*slot);
  std::erase_if(model->second->slots, [](const auto& one) { return !one->listed && one->in_flight == 0; });
  pump(now_s, *model->second, actions);
}

void Router::accepted(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.slot == nullptr) return;
  found->second.slot->refusals = 0;
  found->second.slot->blocked_until_s = 0;
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
  auto* const tracker = model == models_.end() ? nullptr : model->second->tracker();
  int after_first = count;
  if (!request.record.first_token_s.has_value()) {
    request.record.first_token_s = now_s;
    if (model != models_.end() && request.record.dispatched_s.has_value())
      model->second->first_token.observe(now_s - *request.record.dispatched_s);
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
  if (may_move && !request.response_started && !request.moved && request.slot != nullptr && !shutting_down_) {
    request.moved = true;
    block(now_s, request.slot, request.record.model, Refusal::kConnect);
    const double limit_s = request.record.arrived_s + options_.request_timeout_s;
    wait_again(now_s, id, std::min(now_s + options_.queue_timeout_s, limit_s), actions);
    return actions;
  }
  lose(now_s, id, message, actions);
  return actions;
}

void Router::lose(double now_s, RequestId id, const std::string& message, Actions& actions) {
  const bool nothing_sent = !requests_.at(id).response_started;
  actions.emplace_back(std::in_place_type<Cancel>, id, 502, nothing_sent, message);
  if (nothing_sent) {
    reject(now_s, id, Reject{id, 502, "worker_failed", message, 0}, actions);
  } else {
    finish(now_s, id, 502, actions);
  }
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
  }
  if (contact >= Contact::kUnreachable) {
    std::vector<RequestId> held;
    for (const auto& [id, request] : requests_) {
      if (request.slot != nullptr && request.slot->address == address) held.push_back(id);
    }
    for (const RequestId id : held) {
      Request& request = requests_.at(id);
      const std::string model = request.record.model;
      if (!request.response_started && !request.moved) {
        request.moved = true;
        ++contact_counts_.recalled[model];
        actions.push_back(Recall{id});
        const double limit_s = request.record.arrived_s + options_.request_timeout_s;
        wait_again(now_s, id, std::min(now_s + options_.queue_timeout_s, limit_s), actions);
      } else if (contact == Contact::kLost) {
        ++contact_counts_.lost[model];
        lose(now_s, id, fmt::format("The worker {} is out of reach.", request.slot->id), actions);
      }
    }
  }
  for (const std::string& name : touched) {
    const auto model = models_.find(name);
    if (model != models_.end()) pump(now_s, *model->second, actions);
  }
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
    const auto& [id_of_first, request] = *requests_.begin();
    const RequestId id = id_of_first;
    const bool waits = request.slot == nullptr;
    const bool nothing_sent = !request.response_started;
    if (!waits) actions.emplace_back(std::in_place_type<Cancel>, id, 503, nothing_sent, kShuttingDown);
    if (nothing_sent) {
      reject(now_s, id, Reject{id, 503, "shutting_down", kShuttingDown, 1}, actions);
    } else {
      finish(now_s, id, 503, actions);
    }
  }
  return actions;
}

std::optional<double> Router::next_deadline_s() const {
  std::optional<double> next;
  const auto earlier = [&next](double t) { next = next.has_value() ? std::min(*next, t) : t; };
  if (!deadlines_.empty()) earlier(deadlines_.begin()->first);
  for (const auto& [name, model] : models_) {
    if (model->waiting.empty()) continue;
    for (const auto& slot : model->slots) {
      // Only what holds a free slot back is worth waking up for: a block, or that nothing fits there yet.
      if (!slot->serves() || slot->in_flight >= slot->capacity) continue;
      if (slot->blocked_until_s > 0) {
        earlier(slot->blocked_until_s);
      } else if (model->tracker() != nullptr) {
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
  if (found == requests_.end() || found->second.slot == nullptr) return false;
  return found->second.slot->draining || !found->second.slot->listed;
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

std::map<std::string, int> Router::queue_lengths() const {
  std::map<std::string, int> lengths;
  for (const auto& [name, model] : models_) {
    if (model->listed) lengths.emplace(name, static_cast<int>(model->total_waiting()));
  }
  return lengths;
}

// Into the model's line, at the place of its arrival.
void Router::wait(Model& model, RequestId id) {
  const Request& request = requests_.at(id);
  const double ttft_s = request.objective.ttft_s;
  model.waiting.join(request.sequence, id,
                     ttft_s > 0 ? request.record.arrived_s + ttft_s : std::numeric_limits<double>::infinity());
}

// A guess is no reason to refuse: it is never longer than what any of the chains takes when it is empty.
dispatch::RequestLengths Router::lengths_of(const Model& model, RequestId id) const {
  return {id, std::min(model.most_input_tokens, model.tokens_per_byte.tokens_of(requests_.at(id).body_bytes)), 0};
}

// Tells a policy that knows of no request yet of all that are at the model's listed chains.
void Router::place_again(double now_s, Model& model) {
  auto* const tracker = model.tracker();
  if (tracker == nullptr) return;
  for (const auto& [id, request] : requests_) {
    const auto& slot = request.slot != nullptr ? request.slot : request.queued_at;
    if (request.record.model != model.route.served_name || slot == nullptr || !slot->listed) continue;
    tracker->placed(slot->index, lengths_of(model, id));
    if (request.record.first_token_s.has_value()) tracker->first_token(id, now_s);
    if (request.tokens > 1) tracker->tokens_made(id, request.tokens - 1);
  }
}

// Gives waiting requests to chains, each in its turn, until the policy says wait.
void Router::pump(double now_s, Model& model, Actions& actions) {
  if (!model.listed || shutting_down_) return;
  model.unblock_waited_out(now_s);
  auto* const tracker = model.tracker();
  for (; !model.prefilled.empty() && model.prefilled.begin()->first <= now_s; model.prefilled.erase(model.prefilled.begin())) {
    if (tracker != nullptr) tracker->first_token(model.prefilled.begin()->second, kNobodyWaits);
  }
  while (!model.waiting.empty()) {
    std::optional<std::size_t> choice;
    dispatch::RequestLengths lengths;
    if (tracker == nullptr) {
      choice = model.policy->choose();
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

// Gives the slots of a chain to those that wait for it, each in its turn.
void Router::serve_queue_of(double now_s, Model& model, const std::shared_ptr<ChainSlot>& slot, Actions& actions) {
  if (!slot->open() || shutting_down_) return;
  while (!slot->waiting.empty() && slot->in_flight < slot->capacity) {
    const auto next = *slot->waiting.next(now_s, model.margin_s());
    slot->waiting.take(next.place);
    --model.waiting_at_chains;
    send(now_s, model, slot, next.id, actions);
  }
}

void Router::send(double now_s, Model& model, const std::shared_ptr<ChainSlot>& slot, RequestId id, Actions& actions) {
  Request& request = requests_.at(id);
  request.slot = slot;
  request.queued_at.reset();
  ++slot->in_flight;
  model.tell(*slot);
  request.record.chain = slot->id;
  request.record.dispatched_s = now_s;
  deadlines_.erase(request.deadline);
  request.deadline = deadlines_.emplace(request.record.arrived_s + options_.request_timeout_s, id);
  if (!request.record.streamed && slot->packing && model.tracker() != nullptr) {
    const double prompt_s = slot->packing->prefill_s + slot->packing->prefill_token_s * lengths_of(model, id).input_tokens;
    model.prefilled.emplace(now_s + prompt_s, id);
  }
  actions.push_back(Dispatch{id, slot->id, slot->address});
}

// Those that wait for this chain wait for any again. The caller tells the policy, and pumps.
void Router::empty_queue_of(Model& model, ChainSlot& slot) {
  model.waiting_at_chains -= slot.waiting.size();
  for (const auto& waiting : slot.waiting.take_all()) {
    if (auto* const tracker = model.tracker()) tracker->ended(waiting.id, 0);
    requests_.at(waiting.id).queued_at.reset();
    model.waiting.join(waiting.place, waiting.id, waiting.deadline_s);
  }
}

// Gives the slot back, or leaves the queue. The caller serves the chain's queue and pumps.
void Router::release(RequestId id, Request& request, int output_tokens) {
  const auto model = models_.find(request.record.model);
  if (model != models_.end()) {
    if (auto* const tracker = model->second->tracker()) tracker->ended(id, output_tokens);
  }
  if (request.slot != nullptr) {
    const auto slot = std::move(request.slot);
    request.slot.reset();
    --slot->in_flight;
    if (model != models_.end()) model->second->tell(*slot);
  } else if (request.queued_at != nullptr) {
    const auto slot = std::move(request.queued_at);
    request.queued_at.reset();
    slot->waiting.leave(request.sequence);
    --model->second->waiting_at_chains;
    model->second->tell(*slot);
  } else if (model != models_.end()) {
    model->second->waiting.leave(request.sequence);
  }
}

void Router::finish(double now_s, RequestId id, int code, Actions& actions) {
  const auto found = requests_.find(id);
  Request& request = found->second;
  deadlines_.erase(request.deadline);
  const auto slot = request.slot;
  if (request.record.generation_tokens < 0 && request.record.streamed) request.record.generation_tokens = request.tokens;
  release(id, request, code == 200 ? std::max(0, request.record.generation_tokens) : 0);
  request.record.code = code;
  request.record.finished_s = now_s;
  const Verdict verdict = judge(request.record, request.objective);
  const std::string name = request.record.model;
  actions.push_back(Finished{id, std::move(request.record), verdict, request.known_model});
  requests_.erase(found);
  const auto model = models_.find(name);
  if (model == models_.end()) return;
  std::erase_if(model->second->slots, [](const auto& slot) { return !slot->listed && slot->in_flight == 0; });
  if (model->second->listed) {
    if (slot != nullptr) serve_queue_of(now_s, *model->second, slot, actions);
    pump(now_s, *model->second, actions);
  } else if (model->second->slots.empty() && model->second->waiting.empty()) {
    models_.erase(model);
  }
}

void Router::reject(double now_s, RequestId id, Reject rejection, Actions& actions) {
  const int status = rejection.status;
  actions.push_back(std::move(rejection));
  finish(now_s, id, status, actions);
}

void Router::time_out(double now_s, RequestId id, Actions& actions) {
  Request& request = requests_.at(id);
  if (request.slot != nullptr) {
    const std::string message = fmt::format("The request took longer than {} s.", options_.request_timeout_s);
    const bool nothing_sent = !request.response_started;
    actions.emplace_back(std::in_place_type<Cancel>, id, 504, nothing_sent, message);
    if (nothing_sent) {
      reject(now_s, id, Reject{id, 504, "request_timeout", message, 0}, actions);
    } else {
      finish(now_s, id, 504, actions);
    }
    return;
  }
  const Model& model = *models_.at(request.record.model);
  const dispatch::WaitingLine& line = request.queued_at != nullptr ? request.queued_at->waiting : model.waiting;
  const double limit_s = request.record.arrived_s + options_.request_timeout_s;
  if (line.overtaken(request.sequence) && now_s < limit_s) {
    // Its turn by arrival has come, and went to others who could still meet their objective: it is not refused for that.
    request.wait_until_s = limit_s;
    deadlines_.erase(request.deadline);
    request.deadline = deadlines_.emplace(limit_s, id);
    return;
  }
  const bool serves = std::any_of(model.slots.begin(), model.slots.end(), [](const auto& slot) { return slot->serves(); });
  const std::string what = serves ? "No slot became free" : model.started() ? "No worker answers" : "No worker is ready";
  reject(now_s, id,
         Reject{id, 503, serves ? "queue_timeout" : "no_worker",
                fmt::format("{} for the model '{}' within {:.0f} s.", what, request.record.model,
                            now_s - request.record.arrived_s),
                retry_after_s(now_s, model)},
         actions);
}

// How long the queue takes to drain at the chains' rates, or the first worker to start: what a client can usefully be told.
int Router::retry_after_s(double now_s, const Model& model) const {
  double rate_per_s = 0;
  for (const auto& slot : model.slots) {
    if (slot->serves()) rate_per_s += slot->capacity * slot->service_rate_per_s;
  }
  if (rate_per_s > 0) {
    return static_cast<int>(std::clamp(std::ceil((static_cast<double>(model.total_waiting()) + 1) / rate_per_s), 1.0,
                                       static_cast<double>(kMaxRetryAfterS)));
  }
  if (model.started() || !(model.route.expected_start_s > 0)) return kRetryAfterNoWorkerS;
  const double left_s = model.route.expected_start_s - (now_s - table_received_s_);
  return static_cast<int>(std::clamp(std::ceil(left_s), 1.0, static_cast<double>(kMaxStartRetryAfterS)));
}

}  // namespace windlass::gateway
