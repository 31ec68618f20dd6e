// ChainStage: a worker whose blocks are in the middle or at the end of the model, as part of chains that other workers start.
//
// Sessions are reserved before they begin, with cache blocks for every position they may reach, so that none loses its room to
// another. The stage's thread batches waiting chunks of all chains, runs them through this worker's blocks and passes hidden
// states on. The last worker answers with logits, or with a summary if that suffices; it then keeps the row until the session's
// next step, in case the first worker asks for it. This thread never waits for the network, so this worker computes one chain's
// step while another chain's is at the next worker.
//
// A session ends when it is released, or when nothing was heard of it for kChainLeaseS. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "metrics/bundles.h"
#include "worker/backend/backend.h"
#include "worker/engine/clock.h"
#include "worker/parallel/chain_wire.h"

namespace windlass::worker {

struct ChainStageOptions {
  ChainModel model;
  BlockRange blocks;                  // of the backend; does not start at block 0
  std::int64_t max_tokens = 0;        // limit of positions per session
  std::int64_t max_batch_tokens = 0;  // per forward()
  std::int64_t max_logit_rows = 0;    // per forward()
};

class ChainStage {
 public:
  // REQUIRES: clock and metrics outlive this.
  ChainStage(const ChainStageOptions& options, std::unique_ptr<Backend> backend, ChainPost post, const Clock& clock,
             const metrics::WorkerMetrics& metrics);
  // Answers steps that are still here with an error.
  ~ChainStage();
  ChainStage(const ChainStage&) = delete;
  ChainStage& operator=(const ChainStage&) = delete;

  // Handles a call. Statuses of the answer: 400 for a body that is not valid for the verb. reserve: 409 if this worker cannot
  // be that part of the chain; 503 if it, or a later worker, has no room or is draining. step, row, keep: sessions_over() if a
  // session is gone here or at a later worker; 502 if a later worker did not answer. row: 409 if no row was kept.
  void call(ChainVerb verb, std::string body, ChainAnswered answered);
  // call() with kStep, without taking over the body's memory.
  void step(std::string_view body, const ChainAnswered& answered);

  // Ends sessions whose lease has expired; call it several times a second.
  void tick();
  // Refuses new sessions from now on.
  void drain();
  [[nodiscard]] std::int64_t sessions() const;
  [[nodiscard]] const ChainStageOptions& options() const;

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;  // also held by calls that wait for other workers' answers
  std::thread thread_;
};

}  // namespace windlass::worker
