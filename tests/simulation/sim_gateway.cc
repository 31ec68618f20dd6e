// Implements sim_gateway.h.
#include "tests/simulation/sim_gateway.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gateway/load_report.h"

namespace windlass::simulation {
namespace {

constexpr double kHopS = 0.001;       // one message to a worker
constexpr double kConnectLimitS = 2;  // until a silent worker counts as unreachable
constexpr double kLongPollS = 20;
constexpr double kRoundPauseS = 0.5;  // after a controller that did not answer or does not lead

}  // namespace

// The metrics of one model, as in gateway/dispatcher.cc.
struct SimGateway::ModelMetrics {
  ModelMetrics(const metrics::GatewayMetrics& all, const std::string& model)
      : started(all.requests_started.with({{"model", model}})),
        attained(all.requests_attained.with({{"model", model}})),
        judged(all.requests_judged.with({{"model", model}})),
        prompt_tokens(all.request_prompt_tokens.with({{"model", model}})),
        generation_tokens(all.request_generation_tokens.with({{"model", model}})),
        measured(all.requests_measured.with({{"model", model}})),
        time_to_first_token(all.time_to_first_token.with({{"model", model}})),
        time_per_output_token(all.time_per_output_token.with({{"model", model}})) {}

  metrics::Counter started, attained, judged, prompt_tokens, generation_tokens, measured;
  metrics::Histogram time_to_first_token, time_per_output_token;
};

SimGateway::SimGateway(Timeline& timeline, SimCluster& cluster, Journal& journal, std::string name, std::uint64_t seed)
    : timeline_(timeline), cluster_(cluster), journal_(journal), name_(std::move(name)), random_(seed, name_) {
  start();
}

SimGateway::~SimGateway() = default;

void SimGateway::start() {
  ++lives_;
  gateway::RouterOptions options;
  options.max_queued = 1000;
  options.queue_timeout_s = 60;
  options.start_timeout_s = 90;
  options.request_timeout_s = 300;
  options.seed = lives_;
  router_ = std::make_unique<gateway::Router>(options);
  reset_counters();
  poll_began_s_.reset();
  next_poll_s_ = timeline_.now_s();
  last_obeyed_ = {};
  wake_at_s_.reset();
  page_fault = PageFault::kNone;
}

void SimGateway::reset_counters() {
  page_is_old_ = true;
  models_.clear();
  shown_chains_.clear();
  metrics_.reset();
  registry_ = std::make_unique<metrics::Registry>();
  metrics_ = std::make_unique<metrics::GatewayMetrics>(*registry_);
  metrics_->process.start_time.set(1.7e9 + timeline_.now_s());
  if (router_->has_table()) {
    for (const dispatch::ModelRoute& route : router_->table().models) of(route.served_name);
  }
}

void SimGateway::crash() {
  journal_.note(timeline_.now_s(), "{} dies with {} requests", name_, open_.size());
  router_.reset();
  ++lives_;
  auto lost = std::exchange(open_, {});
  for (auto& [id, open] : lost) {
    leave(open.call);
    leave(open.kept);
    on_finished(open.model, 0, open.arrived_s);
  }
}

void SimGateway::leave(std::optional<CallId>& call) {
  if (call) cluster_.give_back(*call);
  call.reset();
}

const dispatch::RoutingTable* SimGateway::table() const {
  return router_ != nullptr && router_->has_table() ? &router_->table() : nullptr;
}

SimGateway::ModelMetrics& SimGateway::of(const std::string& model) {
  auto& entry = models_[model];
  if (entry == nullptr) entry = std::make_unique<ModelMetrics>(*metrics_, model);
  return *entry;
}

void SimGateway::request(const std::string& model, int tokens, double length) {
  const double now_s = timeline_.now_s();
  const gateway::RequestId id = next_id_++;
  open_.emplace(id, Open{model, now_s, tokens, length, std::nullopt, std::nullopt});
  ++arrivals_[model];
  if (const auto known = models_.find(model); known != models_.end()) known->second->started.add();
  perform(router_->arrived(now_s, id, model, true));
  if (open_.contains(id) && random_.uniform() < impatient) {
    timeline_.after(random_.uniform(0, 10), [this, id, life = lives_] {
      const auto found = open_.find(id);
      if (life != lives_ || found == open_.end()) return;
      leave(found->second.call);
      leave(found->second.kept);
      perform(router_->client_gone(timeline_.now_s(), id));
    });
  }
}

void SimGateway::perform(const gateway::Actions& actions) {
  page_is_old_ = true;
  for (const gateway::Action& action : actions) {
    if (const auto* dispatch = std::get_if<gateway::Dispatch>(&action)) {
      timeline_.after(kHopS, [this, life = lives_, to = *dispatch] {
        if (life == lives_) send(to);
      });
    } else if (const auto* cancel = std::get_if<gateway::Cancel>(&action)) {
      const auto found = open_.find(cancel->id);
      if (found == open_.end()) continue;
      leave(found->second.call);
      leave(found->second.kept);
    } else if (const auto* recall = std::get_if<gateway::Recall>(&action)) {
      const auto found = open_.find(recall->id);
      if (found != open_.end()) leave(recall->to_beginning ? found->second.kept : found->second.call);
    } else if (const auto* over = std::get_if<gateway::Finished>(&action)) {
      finished(*over);
    }
  }
  wake();
}

// The router's own deadlines. One timer, which may fire early and then does nothing.
void SimGateway::wake() {
  const auto next_s = router_->next_deadline_s();
  if (!next_s || (wake_at_s_ && *wake_at_s_ <= *next_s)) return;
  wake_at_s_ = next_s;
  timeline_.at(*next_s + 1e-6, [this, life = lives_] {
    if (life != lives_) return;
    wake_at_s_.reset();
    perform(router_->tick(timeline_.now_s()));
  });
}

double SimGateway::slot_time_s(const std::string& model, const std::string& chain) const {
  for (const dispatch::ModelRoute& route : router_->table().models) {
    if (route.served_name != model) continue;
    for (const dispatch::Chain& one : route.chains) {
      if (one.id == chain && one.service_rate_per_s > 0) return 1 / one.service_rate_per_s;
    }
  }
  return 3;
}

void SimGateway::send(const gateway::Dispatch& to) {
  const gateway::RequestId id = to.id;
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.call) return;
  const CallId call = cluster_.next_call();
  const SimCluster::Taken taken = cluster_.take(to.address, call, [this, id, call, life = lives_] {
    // The connection broke together with the worker. The router notices in the next turn of the loop.
    timeline_.after(kHopS, [this, id, call, life] {
      if (life == lives_) call_broke(id, call);
    });
  });
  const auto refuse = [this, id](gateway::Refusal why) { perform(router_->refused(timeline_.now_s(), id, why)); };
  switch (taken) {
    case SimCluster::Taken::kFull: refuse(gateway::Refusal::kFull); return;
    case SimCluster::Taken::kDraining: refuse(gateway::Refusal::kDraining); return;
    case SimCluster::Taken::kConnect:
      // Nobody listens: refused immediately, or silence until the limit.
      timeline_.after(random_.uniform() < 0.5 ? kHopS : kConnectLimitS, [this, life = lives_, refuse] {
        if (life == lives_) refuse(gateway::Refusal::kConnect);
      });
      return;
    case SimCluster::Taken::kYes: break;
  }
  found->second.call = call;
  // At most what the plan promises for a full batch, so that only faults make a request miss its objective.
  const double total_s = slot_time_s(found->second.model, to.chain) * random_.uniform(0.6, 1.0);
  const double first_s = 0.15 * total_s;
  timeline_.after(first_s,
                  [this, life = lives_, id, call, rest_s = found->second.length * (total_s - first_s), step = to.step] {
                    if (life != lives_) return;
                    if (step == gateway::Step::kPrefill) {
                      prompt_computed(id, call);
                    } else {
                      first_token(id, call, rest_s);
                    }
                  });
  perform(router_->accepted(timeline_.now_s(), id));
}

void SimGateway::call_broke(gateway::RequestId id, CallId call) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  if (found->second.kept == call) {
    found->second.kept.reset();
    perform(router_->prefill_ended(timeline_.now_s(), id));
  } else if (found->second.call == call) {
    found->second.call.reset();
    perform(router_->failed(timeline_.now_s(), id, "the worker broke off"));
  }
}

void SimGateway::prompt_computed(gateway::RequestId id, CallId call) {
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.call != call) return;
  const auto free_s = cluster_.free_at(call);
  if (!free_s) return;  // the broken connection is reported separately
  if (*free_s > timeline_.now_s()) {
    timeline_.at(*free_s + 1e-6, [this, life = lives_, id, call] {
      if (life == lives_) prompt_computed(id, call);
    });
    return;
  }
  found->second.kept = std::exchange(found->second.call, std::nullopt);
  perform(router_->prefilled(timeline_.now_s(), id));
}

void SimGateway::first_token(gateway::RequestId id, CallId call, double rest_s) {
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.call != call) return;
  const auto free_s = cluster_.free_at(call);
  if (!free_s) return;  // the broken connection is reported separately
  if (*free_s > timeline_.now_s()) {
    timeline_.at(*free_s + 1e-6, [this, life = lives_, id, call, rest_s] {
      if (life == lives_) first_token(id, call, rest_s);
    });
    return;
  }
  page_is_old_ = true;
  if (found->second.kept) {
    leave(found->second.kept);
    perform(router_->prefill_ended(timeline_.now_s(), id));
  }
  router_->response_started(id);
  router_->tokens_sent(timeline_.now_s(), id, 1);
  of(found->second.model).time_to_first_token.observe(timeline_.now_s() - found->second.arrived_s);
  timeline_.after(rest_s, [this, life = lives_, id, call] {
    if (life == lives_) complete(id, call);
  });
}

void SimGateway::complete(gateway::RequestId id, CallId call) {
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.call != call) return;
  const auto free_s = cluster_.free_at(call);
  if (!free_s) return;
  if (*free_s > timeline_.now_s()) {
    timeline_.at(*free_s + 1e-6, [this, life = lives_, id, call] {
      if (life == lives_) complete(id, call);
    });
    return;
  }
  const int tokens = found->second.tokens;
  router_->tokens_sent(timeline_.now_s(), id, tokens - 1);
  leave(found->second.call);
  perform(router_->completed(timeline_.now_s(), id, {200, 1000, tokens}));
}

void SimGateway::finished(const gateway::Finished& over) {
  const auto found = open_.find(over.id);
  if (found == open_.end()) {
    on_violation(fmt::format("{}: request {} ended twice", name_, over.id));
    return;
  }
  Open open = std::move(found->second);
  open_.erase(found);
  leave(open.call);
  leave(open.kept);
  const gateway::RequestRecord& record = over.record;
  if (over.known_model) {
    ModelMetrics& model = of(record.model);
    metrics_->requests_finished.with({{"model", record.model}, {"code", std::to_string(record.code)}}).add();
    if (over.verdict != gateway::Verdict::kNotCounted) model.judged.add();
    if (over.verdict == gateway::Verdict::kAttained) model.attained.add();
    if (record.code < 300) {
      if (const auto tpot_s = gateway::time_per_output_token_s(record)) model.time_per_output_token.observe(*tpot_s);
      if (record.prompt_tokens >= 0 && record.generation_tokens >= 0) {
        model.prompt_tokens.add(record.prompt_tokens);
        model.generation_tokens.add(record.generation_tokens);
        model.measured.add();
      }
    }
  }
  on_finished(open.model, record.code, open.arrived_s);
}

void SimGateway::poll(std::size_t controllers, const std::function<TableSource(std::size_t)>& reach) {
  const double now_s = timeline_.now_s();
  if (!up() || controllers == 0 || now_s < next_poll_s_) return;
  const TableSource source = partitioned ? TableSource{} : reach(controller_);
  if (source.publisher == nullptr || !source.publisher->serving()) {
    poll_began_s_.reset();
    controller_ = (controller_ + 1) % controllers;
    next_poll_s_ = now_s + kRoundPauseS;
    return;
  }
  std::optional<dispatch::RoutingTable> table;
  if (poll_began_s_ && now_s - *poll_began_s_ < kLongPollS) {
    table = source.publisher->newer(name_, asked_after_, source.monotonic_s);
  } else {
    asked_after_ = last_obeyed_;
    poll_began_s_ = now_s;
    controller::GatewayQuestion question{name_, admin_address(), false, asked_after_, {}, gateway::over_share(*router_)};
    for (const auto& load : router_->chain_loads()) question.loads[load.model].in_flight += load.in_flight;
    for (const auto& [model, length] : router_->queue_lengths()) question.loads[model].queued += length;
    table = source.publisher->ask(question, source.monotonic_s);
  }
  if (!table) return;
  poll_began_s_.reset();
  const double late_s = random_.uniform(0, std::max(0.02, table_late_s));
  next_poll_s_ = now_s + late_s;  // one poll at a time: the next one waits for this response
  timeline_.after(late_s, [this, life = lives_, table = std::move(*table)] {
    if (life == lives_) obey(table);
  });
}

void SimGateway::obey(dispatch::RoutingTable table) {
  const dispatch::TableVersion version = table.version;
  const bool newer = !router_->has_table() || version > router_->table().version;
  auto outcome = router_->table_changed(timeline_.now_s(), std::move(table));
  if (outcome.accepted != newer) {
    on_violation(fmt::format("{}: table {} was {} while {} was in use", name_, dispatch::to_string(version),
                             outcome.accepted ? "taken" : "refused", dispatch::to_string(last_obeyed_)));
  }
  if (!outcome.accepted) return;
  last_obeyed_ = version;
  journal_.note(timeline_.now_s(), "{} obeys table {}", name_, dispatch::to_string(version));
  for (const auto& route : router_->table().models) of(route.served_name);
  perform(outcome.actions);
}

std::string SimGateway::describe_open() const {
  if (open_.empty()) return "none";
  const Open& oldest = open_.begin()->second;
  std::string text = fmt::format("the oldest is for {}, {:.0f} s old, {}", oldest.model, timeline_.now_s() - oldest.arrived_s,
                                 oldest.call ? "at a worker" : "at no worker");
  for (const auto& load : router_->chain_loads())
    text += fmt::format("; {} holds {} of {}{}", load.chain, load.in_flight, load.capacity, load.draining ? ", draining" : "");
  return text;
}

void SimGateway::refresh_gauges() {
  std::map<std::pair<std::string, std::string>, int> in_flight;
  for (const auto& load : router_->chain_loads()) in_flight[{load.model, load.chain}] += load.in_flight;
  for (const auto& [model, chain] : shown_chains_) {
    if (!in_flight.contains({model, chain})) metrics_->requests_in_flight.remove({{"model", model}, {"chain", chain}});
  }
  shown_chains_.clear();
  for (const auto& [key, count] : in_flight) {
    metrics_->requests_in_flight.with({{"model", key.first}, {"chain", key.second}}).set(count);
    shown_chains_.insert(key);
  }
  for (const auto& [model, length] : router_->queue_lengths()) metrics_->queue_length.with({{"model", model}}).set(length);
}

Result<kube::HttpResponse> SimGateway::metrics_page() {
  if (!up() || partitioned || page_fault == PageFault::kUnreadable) {
    return Error{ErrorCode::kUnavailable, name_ + " does not answer"};
  }
  if (page_is_old_) {
    refresh_gauges();
    page_ = registry_->exposition();
    page_is_old_ = false;
  }
  std::string page = page_;
  if (page_fault == PageFault::kNone) return kube::HttpResponse{200, {}, std::move(page)};
  std::string spoilt;
  std::size_t begin = 0;
  while (begin < page.size()) {
    const std::size_t end = std::min(page.find('\n', begin), page.size());
    std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    const bool demand = line.find("requests_started") != std::string::npos || line.find("queue_length") != std::string::npos;
    if (demand && !line.starts_with("#")) {
      if (page_fault == PageFault::kSeriesMissing) continue;
      line = line.substr(0, line.rfind(' ')) + " NaN";
    }
    spoilt += line + "\n";
  }
  return kube::HttpResponse{200, {}, std::move(spoilt)};
}

}  // namespace windlass::simulation
