// EngineLoop: runs an Engine on one thread, delivers its events on another, and gives other threads access to both.
//
// submit(), cancel(), taken(), abandoned(), received(), drain() and the getters may be called from any thread and never wait
// for a step. Each sink is called once per TokenEvent of its request, in order, on the delivery thread, so a slow write to a
// client does not delay an iteration. Sinks must not block and may call only cancel() on the loop. Counts and times are
// written to the injected WorkerMetrics before a sink sees the event. The load gauges may already describe a later
// iteration.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "metrics/bundles.h"
#include "worker/engine/engine.h"

namespace windlass::worker {

class EngineLoop {
 public:
  using Sink = std::function<void(const TokenEvent&)>;
  // Upper bound of undelivered events; the engine waits when it is reached.
  static constexpr std::size_t kMaxUntold = 4096;

  // REQUIRES: clock, metrics and both sides of `transfer` outlive the loop. All transfer sessions end when the loop is
  // destroyed.
  EngineLoop(EngineOptions options, std::unique_ptr<Backend> backend, TokenBytes token_bytes, const Clock& clock,
             const metrics::WorkerMetrics& metrics, KvTransfer transfer = {});
  // Ends all requests in flight with kCancelled and joins both threads.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Accepts the request; its sink then receives events up to the one with `finish`. Errors, before any work is done:
  // kFailedPrecondition (draining), kResourceExhausted (queue full), kInvalidArgument (Engine::check).
  [[nodiscard]] Result<RequestId> submit(GenerationRequest request, Sink sink);

  // Accepts all requests or none; errors as above. Returns the ids in the order of the requests.
  [[nodiscard]] Result<std::vector<RequestId>> submit_all(std::vector<std::pair<GenerationRequest, Sink>> requests);

  // Cancels the request soon; its sink receives kCancelled unless the request finishes first.
  void cancel(RequestId id, const std::string& why);
  void cancel_all(const std::string& why);

  // Outcomes of KV transfers (Engine::taken, abandoned, received).
  void taken(std::string session);
  void abandoned(std::string session);
  void received(RequestId request, Result<Sampled> first);

  // Refuses new requests from now on. Accepted ones continue.
  void drain();
  [[nodiscard]] bool draining() const;

  // Accepted requests whose sink has not yet received the final event.
  [[nodiscard]] std::int64_t in_flight() const;
  // Waits at most `seconds` until nothing is in flight. Returns whether that happened.
  [[nodiscard]] bool wait_idle(double seconds) const;

  [[nodiscard]] const EngineOptions& options() const { return options_; }

 private:
  struct Arrival {
    RequestId id;
    GenerationRequest request;
    double arrived_s;
  };

  struct Received {
    RequestId request = 0;
    Result<Sampled> first;
  };
  // Calls from other threads that wait for the engine's next step.
  struct Inbox {
    std::vector<Arrival> arrivals;
    std::vector<std::pair<RequestId, std::string>> cancels;
    std::vector<std::string> taken, abandoned;
    std::vector<Received> received;

    [[nodiscard]] bool empty() const {
      return arrivals.empty() && cancels.empty() && taken.empty() && abandoned.empty() && received.empty();
    }
  };

  void run();
  void handle(Inbox& inbox);
  void step();
  void tell(std::vector<TokenEvent> events);
  void run_telling();
  void deliver(const TokenEvent& event);
  void publish_load();

  const EngineOptions options_;
  const std::unique_ptr<Backend> backend_;
  const std::int64_t vocab_size_;
  const Clock& clock_;
  const metrics::WorkerMetrics& metrics_;
  Engine engine_;  // used only by the loop's thread

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Inbox inbox_;
  std::unordered_map<RequestId, Sink> sinks_;  // of all requests in flight
  RequestId next_id_ = 1;
  bool draining_ = false;
  bool stopping_ = false;

  std::mutex untold_mutex_;
  std::condition_variable untold_changed_;
  std::vector<TokenEvent> untold_;
  bool all_is_told_ = false;  // no event follows those in untold_

  std::thread telling_;
  std::thread thread_;  // last member: starts after all others are constructed
};

}  // namespace windlass::worker
