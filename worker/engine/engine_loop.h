// EngineLoop: the thread that steps an Engine, another that tells of its events, and the door to both for other threads.
//
// submit(), cancel(), taken(), abandoned(), received(), drain() and the getters may be called from any thread; they never wait
// for a step. Sinks are called on a thread of their own, in order, once for each TokenEvent of their request: what they write
// to clients holds no iteration up. They must not block, and of the loop they may call cancel() alone. Counts and times go into
// the injected WorkerMetrics before a sink hears of them; the gauges of load may be ahead of both.
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
  // An engine that has so many events for those who tell the sinks waits for them.
  static constexpr std::size_t kMaxUntold = 4096;

  // REQUIRES: clock, metrics and transfer's ends outlive this; with it all their sessions end.
  EngineLoop(EngineOptions options, std::unique_ptr<Backend> backend, TokenBytes token_bytes, const Clock& clock,
             const metrics::WorkerMetrics& metrics, KvTransfer transfer = {});
  // Ends what is still in flight with kCancelled and joins the threads.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Takes the request; from now on its sink hears of it until an event with `finish`. Errors, before any work is done:
  // kFailedPrecondition (draining), kResourceExhausted (full), kInvalidArgument (Engine::check).
  [[nodiscard]] Result<RequestId> submit(GenerationRequest request, Sink sink);

  // Takes all of them or none, with the same errors; ids in their order.
  [[nodiscard]] Result<std::vector<RequestId>> submit_all(std::vector<std::pair<GenerationRequest, Sink>> requests);

  // Ends the request soon; its sink hears kCancelled unless it had ended by itself.
  void cancel(RequestId id, const std::string& why);
  void cancel_all(const std::string& why);

  // What became of keys and values (Engine::taken, abandoned, received).
  void taken(std::string session);
  void abandoned(std::string session);
  void received(RequestId request, Result<Sampled> first);

  // No new requests from now on. Those that are here go on.
  void drain();
  [[nodiscard]] bool draining() const;

  // Requests taken whose end their sink has not heard yet.
  [[nodiscard]] std::int64_t in_flight() const;
  // True once nothing is in flight; false when that took longer.
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
  // What other threads want of the engine.
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
  Engine engine_;  // the loop's thread alone

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Inbox inbox_;
  std::unordered_map<RequestId, Sink> sinks_;  // of all in flight
  RequestId next_id_ = 1;
  bool draining_ = false;
  bool stopping_ = false;

  std::mutex untold_mutex_;
  std::condition_variable untold_changed_;
  std::vector<TokenEvent> untold_;
  bool all_is_told_ = false;  // nothing comes behind what is in untold_

  std::thread telling_;
  std::thread thread_;  // last: starts when all else stands
};

}  // namespace windlass::worker
