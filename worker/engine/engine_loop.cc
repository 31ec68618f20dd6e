// The loop: takes calls from the inbox, steps the engine, and passes events through a bounded queue to the delivery thread.
#include "worker/engine/engine_loop.h"

#include <chrono>
#include <iterator>
#include <optional>

#include <fmt/core.h>

namespace windlass::worker {

EngineLoop::EngineLoop(EngineOptions options, std::unique_ptr<Backend> backend, TokenBytes token_bytes, const Clock& clock,
                       const metrics::WorkerMetrics& metrics, KvTransfer transfer)
    : options_(std::move(options)),
      backend_(std::move(backend)),
      vocab_size_(backend_->vocab_size()),
      clock_(clock),
      metrics_(metrics),
      engine_(options_, *backend_, std::move(token_bytes), clock, transfer) {
  publish_load();
  telling_ = std::thread([this] { run_telling(); });
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() {
  {
    const std::scoped_lock lock(mutex_);
    draining_ = true;
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  {
    const std::scoped_lock lock(untold_mutex_);
    all_is_told_ = true;
  }
  untold_changed_.notify_all();
  telling_.join();
}

Result<RequestId> EngineLoop::submit(GenerationRequest request, Sink sink) {
  std::vector<std::pair<GenerationRequest, Sink>> one;
  one.emplace_back(std::move(request), std::move(sink));
  WINDLASS_ASSIGN_OR_RETURN(const auto ids, submit_all(std::move(one)));
  return ids.front();
}

Result<std::vector<RequestId>> EngineLoop::submit_all(std::vector<std::pair<GenerationRequest, Sink>> requests) {
  for (const auto& [request, sink] : requests) WINDLASS_RETURN_IF_ERROR(Engine::check(options_, vocab_size_, request));
  std::vector<RequestId> ids;
  {
    const std::scoped_lock lock(mutex_);
    if (draining_) return Error{ErrorCode::kFailedPrecondition, "this worker is draining and accepts no new requests"};
    const auto allowed = static_cast<std::size_t>(options_.max_running + options_.max_waiting);
    if (sinks_.size() + requests.size() > allowed) {
      return Error{ErrorCode::kResourceExhausted,
                   fmt::format("this worker is full: {} requests in flight{} (at most {} running and {} waiting)",
                               sinks_.size(), requests.size() > 1 ? fmt::format(" and {} more requested", requests.size()) : "",
                               options_.max_running, options_.max_waiting)};
    }
    const double now_s = clock_.now_s();
    for (auto& [request, sink] : requests) {
      ids.push_back(next_id_++);
      sinks_.emplace(ids.back(), std::move(sink));
      inbox_.arrivals.push_back({ids.back(), std::move(request), now_s});
    }
  }
  changed_.notify_all();
  return ids;
}

void EngineLoop::cancel(RequestId id, const std::string& why) {
  {
    const std::scoped_lock lock(mutex_);
    if (sinks_.count(id) == 0) return;
    inbox_.cancels.emplace_back(id, why);
  }
  changed_.notify_all();
}

void EngineLoop::cancel_all(const std::string& why) {
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, sink] : sinks_) inbox_.cancels.emplace_back(id, why);
  }
  changed_.notify_all();
}

// These three notify while they hold the mutex: once the loop has seen the change, it may be destroyed as soon as it gets the
// lock.
void EngineLoop::taken(std::string session) {
  const std::scoped_lock lock(mutex_);
  inbox_.taken.push_back(std::move(session));
  changed_.notify_all();
}

void EngineLoop::abandoned(std::string session) {
  const std::scoped_lock lock(mutex_);
  inbox_.abandoned.push_back(std::move(session));
  changed_.notify_all();
}

void EngineLoop::received(RequestId request, Result<Sampled> first) {
  const std::scoped_lock lock(mutex_);
  inbox_.received.push_back({request, std::move(first)});
  changed_.notify_all();
}

void EngineLoop::drain() {
  const std::scoped_lock lock(mutex_);
  draining_ = true;
}

bool EngineLoop::draining() const {
  const std::scoped_lock lock(mutex_);
  return draining_;
}

std::int64_t EngineLoop::in_flight() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::int64_t>(sinks_.size());
}

bool EngineLoop::wait_idle(double seconds) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return sinks_.empty(); });
}

void EngineLoop::publish_load() {
  const EngineLoad load = engine_.load();
  metrics_.requests_running.set(static_cast<double>(load.running));
  metrics_.requests_waiting.set(static_cast<double>(load.waiting));
  metrics_.prompts_held.set(static_cast<double>(load.held));
  metrics_.kv_blocks.set(static_cast<double>(load.kv_blocks));
  metrics_.kv_blocks_used.set(static_cast<double>(load.kv_blocks_used));
  metrics_.kv_cache_usage_ratio.set(static_cast<double>(load.kv_blocks_used) / static_cast<double>(load.kv_blocks));
}

void EngineLoop::tell(std::vector<TokenEvent> events) {
  if (events.empty()) return;
  {
    std::unique_lock lock(untold_mutex_);
    untold_changed_.wait(lock, [&] { return untold_.size() < kMaxUntold; });
    if (untold_.empty()) {
      untold_ = std::move(events);
    } else {
      std::move(events.begin(), events.end(), std::back_inserter(untold_));
    }
  }
  untold_changed_.notify_all();
}

void EngineLoop::run_telling() {
  for (;;) {
    std::vector<TokenEvent> events;
    {
      std::unique_lock lock(untold_mutex_);
      untold_changed_.wait(lock, [&] { return all_is_told_ || !untold_.empty(); });
      if (untold_.empty()) return;
      std::swap(events, untold_);
    }
    untold_changed_.notify_all();
    for (const TokenEvent& event : events) deliver(event);
  }
}

void EngineLoop::deliver(const TokenEvent& event) {
  if (event.has_token) {
    if (!event.for_another) metrics_.generation_tokens.add(1);
    if (event.generated_tokens == 1) {
      if (!event.for_another) metrics_.time_to_first_token.observe(event.times.first_token_s - event.times.arrived_s);
      metrics_.request_queue.observe(event.times.started_s - event.times.arrived_s);
      if (!event.prompt_received) {
        metrics_.prompt_tokens.add(static_cast<double>(event.prompt_tokens));
        metrics_.request_prefill.observe(event.times.first_token_s - event.times.started_s);
      }
    }
  }
  if (event.finish) {
    const bool prefilled = event.for_another && *event.finish == FinishReason::kStop;
    metrics_.requests_finished(prefilled ? "prefilled" : to_string(*event.finish)).add(1);
    if (event.generated_tokens > 1) {
      metrics_.request_decode.observe(event.times.last_token_s - event.times.first_token_s);
      metrics_.time_per_output_token.observe((event.times.last_token_s - event.times.first_token_s) /
                                             static_cast<double>(event.generated_tokens - 1));
    }
    if (!event.for_another) metrics_.e2e_request_latency.observe(clock_.now_s() - event.times.arrived_s);
  }
  Sink sink;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = sinks_.find(event.request);
    if (it == sinks_.end()) return;
    sink = it->second;
  }
  sink(event);
  if (!event.finish) return;
  {
    // Only after the sink has received the final event: a thread in wait_idle() may then destroy whatever the sink uses.
    const std::scoped_lock lock(mutex_);
    sinks_.erase(event.request);
  }
  changed_.notify_all();
}

void EngineLoop::handle(Inbox& inbox) {
  std::vector<TokenEvent> events;
  const auto ends = [&](std::optional<TokenEvent> event) {
    if (event) events.push_back(std::move(*event));
  };
  for (Arrival& arrival : inbox.arrivals) {
    const Result<void> taken = engine_.submit(arrival.id, std::move(arrival.request), arrival.arrived_s);
    if (taken.ok()) continue;
    TokenEvent event;
    event.request = arrival.id;
    event.finish = FinishReason::kError;
    event.error = taken.error().message;
    event.times.arrived_s = arrival.arrived_s;
    ends(std::move(event));
  }
  // A session whose data was fetched completely also ends, but that is not a cancellation.
  for (const std::string& session : inbox.taken) ends(engine_.taken(session));
  for (const auto& [id, why] : inbox.cancels) ends(engine_.cancel(id, why));
  for (const std::string& session : inbox.abandoned) ends(engine_.abandoned(session));
  for (const Received& each : inbox.received) ends(engine_.received(each.request, each.first));
  if (!events.empty()) publish_load();  // load is published before the final event is delivered
  tell(std::move(events));
}

void EngineLoop::step() {
  const std::int64_t preempted = engine_.preemptions();
  const Engine::PrefixCounts looked_up = engine_.prefix_counts();
  std::vector<TokenEvent> events = engine_.step([this] { publish_load(); });
  if (engine_.last_iteration().tokens > 0) {
    metrics_.iteration.observe(engine_.last_iteration().seconds);
    metrics_.iteration_tokens.observe(static_cast<double>(engine_.last_iteration().tokens));
  }
  metrics_.preemptions.add(static_cast<double>(engine_.preemptions() - preempted));
  metrics_.prefix_cache_queries.add(static_cast<double>(engine_.prefix_counts().prompt_tokens - looked_up.prompt_tokens));
  metrics_.prefix_cache_hits.add(static_cast<double>(engine_.prefix_counts().found - looked_up.found));
  publish_load();
  tell(std::move(events));
}

void EngineLoop::run() {
  for (;;) {
    Inbox inbox;
    bool stopping = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !inbox_.empty() || !(engine_.idle() || engine_.stalled()); });
      std::swap(inbox, inbox_);
      stopping = stopping_;
      if (stopping) {
        inbox.cancels.clear();
        for (const auto& [id, sink] : sinks_) inbox.cancels.emplace_back(id, "the worker stops");
      }
    }
    handle(inbox);
    if (stopping) return;
    step();
  }
}

}  // namespace windlass::worker
