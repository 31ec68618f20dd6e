// ChainStage: a worker with some blocks in the middle or at the end of the model, as a part of chains that others begin.
//
// Sessions are reserved before they begin, with cache blocks for all positions that they may come to, so that none ever loses
// its room to another. A thread of its own takes the chunks that have come, of all chains together, through this worker's
// blocks, as many as a batch holds, and passes hidden states on; the last worker answers with logits, or with a summary where
// that is enough, and keeps the row for who may ask for it after all, until the session's next one. Nobody waits on that
// thread for a network, so that a worker computes one chain's step while another chain's is at the next worker.
//
// Sessions end when they are released, or when nothing has been heard of them for kChainLeaseS. Thread-safe.
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
  BlockRange blocks;                  // of the backend; not from block 0 on
  std::int64_t max_tokens = 0;        // positions that a session may have
  std::int64_t max_batch_tokens = 0;  // per forward()
  std::int64_t max_logit_rows = 0;    // per forward()
};

class ChainStage {
 public:
  // REQUIRES: clock and metrics outlive this.
  ChainStage(const ChainStageOptions& options, std::unique_ptr<Backend> backend, ChainPost post, const Clock& clock,
             const metrics::WorkerMetrics& metrics);
  // Steps that are still here are answered with an error.
  ~ChainStage();
  ChainStage(const ChainStage&) = delete;
  ChainStage& operator=(const ChainStage&) = delete;

  // Statuses of the answer: 400 for a body that is none of the verb; of reserve 409 where this worker cannot be that part of
  // that chain, and 503 where it has no room or drains, or a later one does; of step, row and keep sessions_over() where some
  // are not here or at a later worker, 502 where a later worker did not answer; of row 409 where none was kept.
  void call(ChainVerb verb, std::string body, ChainAnswered answered);
  // The same with kStep, for who keeps the body's memory.
  void step(std::string_view body, const ChainAnswered& answered);

  // Ends what nobody tells of any more; to be called several times a second.
  void tick();
  // No new sessions from now on.
  void drain();
  [[nodiscard]] std::int64_t sessions() const;
  [[nodiscard]] const ChainStageOptions& options() const;

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;  // also held by what waits for other workers' answers
  std::thread thread_;
};

}  // namespace windlass::worker
