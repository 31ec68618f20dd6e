// Steps of a chain over kept TCP connections between two workers; several times as fast as HTTP. All other calls use HTTP, as
// do steps that find no connection (docs/decisions/2026-11-22-chains-of-workers.md).
//
// The client learns the port from the answer to a reservation and connects then, so no step waits for a connection. Both sides
// send kChainStepsHello. Then, for each step, the client sends a ChainStepHead and the step, and the server a
// ChainStepAnswerHead, the answer's `rejected` and its body. A connection carries one step at a time and has a thread on each
// side, which sleeps between steps and exits after a while without any. Little-endian.
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
  // Returns the stage that receives steps, or nullptr if there is none, which ends connections. The stage is held only while a
  // step is handed over.
  using StageNow = std::function<std::shared_ptr<ChainStage>()>;

  // Listens on a free port. `stage` is called on the threads of connections. Error: kUnavailable, naming the address.
  [[nodiscard]] static Result<std::unique_ptr<ChainStepServer>> open(const std::string& host, StageNow stage);
  // Breaks off all connections; steps already at the stage continue there.
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
  // `http`: makes all other calls; its answers to reservations carry the ports. A connection ends after `idle_s` without steps.
  explicit ChainStepClient(ChainPost http, double idle_s = kIdleS);
  // Breaks off all connections; their steps get no answer.
  ~ChainStepClient();
  ChainStepClient(const ChainStepClient&) = delete;
  ChainStepClient& operator=(const ChainStepClient&) = delete;

  // May outlive this object; then all calls use HTTP.
  [[nodiscard]] ChainPost post();
  static constexpr double kIdleS = 30;
  // Whether the next step to that worker would find a connection.
  [[nodiscard]] bool ready(const std::string& address) const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // also held by the threads of connections and calls in progress
};

}  // namespace windlass::worker
