// A chain's steps over TCP connections that are kept between two workers: several times as fast as over HTTP, which the other
// calls keep to, and which is also the way of a step that finds no connection (docs/decisions/2026-11-22-chains-of-workers.md).
//
// Who calls learns the port from the answer to a reservation and connects then, so that no step ever waits for a connection.
// Both sides say kChainStepsHello; then the caller sends a ChainStepHead and the step, the other a ChainStepAnswerHead, the
// answer's `rejected` and its body, and so on. One step at a time has a connection; each has a thread on both sides, which
// sleeps in between, and ends after a while without steps. Little-endian.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "planner/base/result.h"
#include "worker/parallel/chain_stage.h"
#include "worker/parallel/chain_wire.h"
#include "worker/parallel/tcp.h"

namespace windlass::worker {

inline constexpr char kChainStepsHello[8] = {'W', 'L', 'S', 'T', 'E', 'P', 'S', '1'};
struct ChainStepHead {
  std::uint64_t bytes;  // of the step
};
struct ChainStepAnswerHead {
  std::uint32_t status;
  std::uint32_t rejected_bytes;
  std::uint64_t body_bytes;
};

class ChainStepServer {
 public:
  // The stage that steps go to; it is held for no longer than it takes to give it a step. nullptr: there is none, and
  // connections end.
  using StageNow = std::function<std::shared_ptr<ChainStage>()>;

  // Listens on a port of its own that is free. `stage` is called on the threads of connections. Error: kUnavailable, naming the
  // address.
  [[nodiscard]] static Result<std::unique_ptr<ChainStepServer>> open(const std::string& host, StageNow stage);
  // Breaks all connections off; steps that are at the stage go on there.
  ~ChainStepServer();
  ChainStepServer(const ChainStepServer&) = delete;
  ChainStepServer& operator=(const ChainStepServer&) = delete;

  [[nodiscard]] int port() const { return server_->port(); }

 private:
  ChainStepServer() = default;

  std::stop_source ends_;
  std::unique_ptr<TcpServer> server_;
};

class ChainStepClient {
 public:
  // `http`: the way of all other calls, whose answers to reservations have ports. Connections end after `idle_s` without steps.
  explicit ChainStepClient(ChainPost http, double idle_s = kIdleS);
  // Breaks all connections off: their steps have no answer.
  ~ChainStepClient();
  ChainStepClient(const ChainStepClient&) = delete;
  ChainStepClient& operator=(const ChainStepClient&) = delete;

  // May outlive this; then all goes over HTTP.
  [[nodiscard]] ChainPost post();
  static constexpr double kIdleS = 30;
  // Whether the next step to that worker would find a connection.
  [[nodiscard]] bool ready(const std::string& address) const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // also held by connections' threads and calls under way
};

}  // namespace windlass::worker
