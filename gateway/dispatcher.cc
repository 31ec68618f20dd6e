// Turns actions into ticket changes, and events into metrics.
#include "gateway/dispatcher.h"

#include <algorithm>
#include <chrono>

#include "metrics/host/clock.h"

namespace windlass::gateway {
namespace {

// The label for requests whose model is in no table: text from clients must not become a series.
constexpr const char* kUnknownModel = "";

constexpr const char* name_of(Refusal why) {
  switch (why) {
    case Refusal::kConnect: return "connect";
    case Refusal::kFull: return "full";
    case Refusal::kDraining: return "draining";
    case Refusal::kRole: return "role";
  }
  return "";
}

// Sets a gauge for each model, and removes the gauges of models that are gone.
void show_by_model(const metrics::GaugeFamily& gauge, const std::map<std::string, int>& counts, std::set<std::string>& shown) {
  for (const auto& model : shown) {
    if (!counts.contains(model)) gauge.remove({{"model", model}});
  }
  shown.clear();
  for (const auto& [model, count] : counts) {
    gauge.with({{"model", model}}).set(count);
    shown.insert(model);
  }
}

}  // namespace

Dispatcher::ModelMetrics::ModelMetrics(const metrics::GatewayMetrics& metrics, const std::string& model)
    : started(metrics.requests_started.with({{"model", model}})),
      attained(metrics.requests_attained.with({{"model", model}})),
      judged(metrics.requests_judged.with({{"model", model}})),
      prompt_tokens(metrics.request_prompt_tokens.with({{"model", model}})),
      generation_tokens(metrics.request_generation_tokens.with({{"model", model}})),
      measured(metrics.requests_measured.with({{"model", model}})),
      rebalanced(metrics.requests_rebalanced.with({{"model", model}})),
      queue_wait(metrics.queue_wait.with({{"model", model}})),
      time_to_first_token(metrics.time_to_first_token.with({{"model", model}})),
      time_per_output_token(metrics.time_per_output_token.with({{"model", model}})) {}

Dispatcher::Dispatcher(asio::io_context& io, RouterOptions options, metrics::GatewayMetrics& metrics)
    : io_(io), metrics_(metrics), router_(options), timer_(io) {}

double Dispatcher::now_s() { return monotonic_s(); }

std::shared_ptr<Ticket> Dispatcher::arrived(const std::string& model, bool streamed, std::size_t body_bytes) {
  auto ticket = std::make_shared<Ticket>(io_, next_id_++);
  ticket->arrived_s = now_s();
  tickets_.emplace(ticket->id, ticket);
  // A known model has had metrics since the first table that listed it; an unknown one must not get any.
  if (const auto known = models_.find(model); known != models_.end()) known->second.started.add();
  apply(router_.arrived(ticket->arrived_s, ticket->id, model, streamed, body_bytes));
  return ticket;
}

asio::awaitable<void> Dispatcher::decision(std::shared_ptr<Ticket> ticket) {
  while (!ticket->dispatch.has_value() && !ticket->over()) {
    error_code ignored;
    ticket->wake.expires_at(asio::steady_timer::time_point::max());
    co_await ticket->wake.async_wait(to(ignored));
  }
}

void Dispatcher::refused(Ticket& ticket, const std::string& model, Refusal why) {
  count_upstream_error(model, name_of(why));
  apply(router_.refused(now_s(), ticket.id, why));
}

void Dispatcher::accepted(Ticket& ticket) { apply(router_.accepted(now_s(), ticket.id)); }

void Dispatcher::prefilled(Ticket& ticket) { apply(router_.prefilled(now_s(), ticket.id)); }

void Dispatcher::prefill_ended(RequestId id) { apply(router_.prefill_ended(now_s(), id)); }

void Dispatcher::tokens_sent(Ticket& ticket, const std::string& model, int count) {
  if (count <= 0) return;
  const double now = now_s();
  router_.tokens_sent(now, ticket.id, count);
  if (ticket.token_seen) return;
  ticket.token_seen = true;
  ModelMetrics& metrics = of(model);
  metrics.time_to_first_token.observe(now - ticket.arrived_s);
  metrics.ttft_bins.observe(now - ticket.arrived_s);
}

void Dispatcher::completed(Ticket& ticket, const Router::Completion& completion) {
  apply(router_.completed(now_s(), ticket.id, completion));
}

void Dispatcher::failed(Ticket& ticket, const std::string& model, const char* reason, const std::string& message,
                        bool may_move) {
  // A worker that was leaving and had not finished: its drain timeout was too short for this request.
  count_upstream_error(model, router_.at_leaving_worker(ticket.id) ? "drain_timeout" : reason);
  apply(router_.failed(now_s(), ticket.id, message, may_move));
}

void Dispatcher::contact_changed(const std::string& address, Contact contact) {
  apply(router_.contact_changed(now_s(), address, contact));
  count_contacts();
}

void Dispatcher::count_contacts() {
  const auto bring = [this](const std::map<std::string, std::int64_t>& now, std::map<std::string, std::int64_t>& before,
                            const char* reason) {
    for (const auto& [model, count] : now) {
      const std::int64_t more = count - before[model];
      if (more > 0) metrics_.upstream_errors.with({{"model", model}, {"reason", reason}}).add(static_cast<double>(more));
      before[model] = count;
    }
  };
  bring(router_.contact_counts().recalled, counted_contacts_.recalled, "recalled");
  bring(router_.contact_counts().lost, counted_contacts_.lost, "lost");
}

void Dispatcher::client_gone(Ticket& ticket) {
  ticket.client_gone = true;
  apply(router_.client_gone(now_s(), ticket.id));
  if (ticket.interrupt) ticket.interrupt();
  ticket.wake.cancel();
}

bool Dispatcher::table_changed(dispatch::RoutingTable table) {
  auto outcome = router_.table_changed(now_s(), std::move(table));
  if (!outcome.accepted) return false;
  metrics_.routing_table_term.set(static_cast<double>(router_.table().version.term));
  metrics_.routing_table_counter.set(static_cast<double>(router_.table().version.counter));
  // Every listed model shows its counters from the start, so that a reader sees 0 and not a missing series.
  for (const auto& route : router_.table().models) of(route.served_name);
  apply(outcome.actions);
  return true;
}

void Dispatcher::shut_down() { apply(router_.shut_down(now_s())); }

void Dispatcher::count_upstream_error(const std::string& model, const char* reason) {
  metrics_.upstream_errors.with({{"model", model}, {"reason", reason}}).add();
}

void Dispatcher::count_key(const std::string& key, int code, std::int64_t tokens) {
  metrics_.key_requests.with({{"key", key}, {"code", std::to_string(code)}}).add();
  if (tokens > 0) metrics_.key_tokens.with({{"key", key}}).add(static_cast<double>(tokens));
}

void Dispatcher::apply(const Actions& actions) {
  for (const Action& action : actions) {
    if (const auto* finished = std::get_if<Finished>(&action)) {
      count(*finished);
      if (const auto over = tickets_.find(finished->id); over != tickets_.end()) {
        over->second->final_code = finished->record.code;
        over->second->final_tokens =
            std::max(0, finished->record.prompt_tokens) + std::max(0, finished->record.generation_tokens);
        tickets_.erase(over);
      }
      continue;
    }
    const RequestId id = std::visit([](const auto& a) { return a.id; }, action);
    const auto found = tickets_.find(id);
    if (found == tickets_.end()) continue;
    Ticket& ticket = *found->second;
    if (const auto* dispatch = std::get_if<Dispatch>(&action)) {
      ticket.dispatch = *dispatch;
    } else if (const auto* reject = std::get_if<Reject>(&action)) {
      ticket.reject = *reject;
    } else if (const auto* cancel = std::get_if<Cancel>(&action)) {
      ticket.cancel = *cancel;
      if (ticket.interrupt) ticket.interrupt();
    } else if (const auto* recall = std::get_if<Recall>(&action)) {
      ticket.recalled = true;
      ticket.starts_over = ticket.starts_over || recall->to_beginning;
      ticket.dispatch.reset();
      if (ticket.interrupt) ticket.interrupt();
    }
    ticket.wake.cancel();
  }
  arm_timer();
}

void Dispatcher::count(const Finished& finished) {
  const RequestRecord& record = finished.record;
  if (!finished.known_model) {
    metrics_.requests_finished.with({{"model", kUnknownModel}, {"code", std::to_string(record.code)}}).add();
    return;
  }
  ModelMetrics& model = of(record.model);
  auto code = model.finished.find(record.code);
  if (code == model.finished.end()) {
    const auto counter = metrics_.requests_finished.with({{"model", record.model}, {"code", std::to_string(record.code)}});
    code = model.finished.emplace(record.code, counter).first;
  }
  code->second.add();
  if (record.mixed_pool) metrics_.mixed_pool_requests.with({{"model", record.model}}).add();
  if (finished.verdict != Verdict::kNotCounted) model.judged.add();
  if (finished.verdict == Verdict::kAttained) model.attained.add();
  if (record.dispatched_s.has_value()) model.queue_wait.observe(*record.dispatched_s - record.arrived_s);
  if (record.code >= 300) return;
  if (const auto tpot_s = time_per_output_token_s(record)) {
    model.time_per_output_token.observe(*tpot_s);
    model.tpot_bins.observe(*tpot_s);
  }
  if (record.prompt_tokens >= 0 && record.generation_tokens >= 0) {
    model.prompt_tokens.add(record.prompt_tokens);
    model.generation_tokens.add(record.generation_tokens);
    model.measured.add();
  }
}

// Leaves a timer that fires early enough: it fires, finds nothing to do, and is set again. Most requests then cost no timer.
void Dispatcher::arm_timer() {
  const auto next_s = router_.next_deadline_s();
  if (!next_s.has_value() || (armed_s_.has_value() && *armed_s_ <= *next_s)) return;
  armed_s_ = next_s;
  const auto due = std::chrono::duration<double>(*next_s);
  timer_.expires_at(asio::steady_timer::time_point(std::chrono::duration_cast<asio::steady_timer::duration>(due) +
                                                   std::chrono::microseconds(1)));
  timer_.async_wait([this](const error_code& error) {
    if (error) return;
    armed_s_.reset();
    apply(router_.tick(now_s()));
  });
}

Dispatcher::ModelMetrics& Dispatcher::of(const std::string& model) {
  const auto found = models_.find(model);
  if (found != models_.end()) return found->second;
  return models_.emplace(model, ModelMetrics(metrics_, model)).first->second;
}

void Dispatcher::refresh_gauges() {
  struct Use {
    int in_flight = 0;
    int slots = 0;
  };
  std::map<std::pair<std::string, std::string>, Use> chains;
  for (const auto& load : router_.chain_loads()) {
    Use& use = chains[{load.model, load.chain}];
    use.in_flight += load.in_flight;
    if (!load.draining) use.slots += load.capacity;
  }
  for (const auto& [model, chain] : shown_chains_) {
    if (chains.contains({model, chain})) continue;
    metrics_.requests_in_flight.remove({{"model", model}, {"chain", chain}});
    metrics_.chain_slots.remove({{"model", model}, {"chain", chain}});
  }
  shown_chains_.clear();
  for (const auto& [key, use] : chains) {
    metrics_.requests_in_flight.with({{"model", key.first}, {"chain", key.second}}).set(use.in_flight);
    metrics_.chain_slots.with({{"model", key.first}, {"chain", key.second}}).set(use.slots);
    shown_chains_.insert(key);
  }
  for (const auto& [model, count] : router_.rebalanced()) {
    ModelMetrics& metrics = of(model);
    if (count > metrics.rebalanced_seen) metrics.rebalanced.add(static_cast<double>(count - metrics.rebalanced_seen));
    metrics.rebalanced_seen = count;
  }
  const auto policies = router_.policies();
  for (const auto& [model, kind] : std::exchange(shown_policies_, policies)) {
    const auto now = policies.find(model);
    if (now != policies.end() && now->second == kind) continue;
    metrics_.dispatch_policy.remove({{"model", model}, {"policy", dispatch::to_string(kind)}});
  }
  for (const auto& [model, kind] : policies) {
    metrics_.dispatch_policy.with({{"model", model}, {"policy", dispatch::to_string(kind)}}).set(1);
  }
  show_by_model(metrics_.queue_length, router_.queue_lengths(), shown_queues_);
  show_by_model(metrics_.decode_queue_length, router_.decode_queue_lengths(), shown_decode_queues_);
  show_by_model(metrics_.mixed_pool_workers, router_.mixed_pools(), shown_mixed_pools_);
  show_by_model(metrics_.silent_workers, router_.silent_chains(), shown_silent_);
}

std::string Dispatcher::latencies_page() const {
  std::string page;
  for (const auto& [model, metrics] : models_) {
    metrics.ttft_bins.write(page, metrics::kGatewayTtft, model);
    metrics.tpot_bins.write(page, metrics::kGatewayTpot, model);
  }
  return page;
}

}  // namespace windlass::gateway
