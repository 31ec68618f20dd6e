// Engine: continuous batching at the level of iterations (Yu et al. 2022, Orca) over a paged KV cache (Kwon et al. 2023, vLLM).
//
// Every step() runs one forward pass over: one token of each decoding sequence, then as many prompt tokens as the step's budget
// leaves (Agrawal et al. 2024, Sarathi-Serve: chunked prefill, so that a long prompt does not stop the others). Waiting
// requests are admitted first come first served while there is a place and the cache has room for the whole prompt. When the
// cache runs out, a sequence takes blocks from the youngest younger one, which goes back to wait and is computed again later;
// if there is none, it waits a step. The oldest sequence always advances, so nothing starves and nothing fails for want of
// cache.
//
// Pure logic over Backend and Clock: no threads, no I/O. One thread at a time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/engine/clock.h"
#include "worker/engine/kv_allocator.h"
#include "worker/engine/request.h"
#include "worker/engine/text_stream.h"

namespace windlass::worker {

struct EngineOptions {
  std::int64_t max_running = 8;
  std::int64_t max_waiting = 16;
  std::int64_t max_context_tokens = 2048;  // prompt and output together; at most what the cache holds
  std::int64_t max_batch_tokens = 256;     // per step; at least max_running
  std::vector<std::int32_t> eos_token_ids;
};

struct Iteration {
  double seconds = 0;       // planning, forward pass and sampling
  std::int64_t tokens = 0;  // computed, of prompts and answers
};

// The bytes of a token; empty for tokens without text.
using TokenBytes = std::function<std::string_view(std::int32_t)>;

class Engine {
 public:
  // REQUIRES: backend and clock outlive this; options are as their comments say.
  Engine(EngineOptions options, Backend& backend, TokenBytes token_bytes, const Clock& clock);
  ~Engine();

  // The request's own fitness, whatever the load. Error: kInvalidArgument, naming found and allowed.
  [[nodiscard]] static Result<void> check(const EngineOptions& options, std::int64_t vocab_size,
                                          const GenerationRequest& request);

  // Queues the request. Errors: those of check(); kResourceExhausted when max_waiting others wait.
  // arrived_s: when it came in, on the engine's clock.
  [[nodiscard]] Result<void> submit(RequestId id, GenerationRequest request, double arrived_s);

  // Ends the request at once; its blocks are free again. The event of its end, or nothing if it is not here.
  [[nodiscard]] std::optional<TokenEvent> cancel(RequestId id, const std::string& why);

  // One iteration. Events in the order of admission; empty when there is nothing to do.
  [[nodiscard]] std::vector<TokenEvent> step();

  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }
  [[nodiscard]] EngineLoad load() const;
  // Of the last step() that had something to do.
  [[nodiscard]] const Iteration& last_iteration() const { return iteration_; }
  // How often a sequence lost its blocks to an older one.
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }

 private:
  struct Sequence;
  struct Work {
    Sequence* sequence;
    std::int64_t tokens;
  };
  using Sequences = std::deque<std::unique_ptr<Sequence>>;

  void plan_step();
  void schedule(Sequence& sequence, std::int64_t tokens);
  void admit();
  [[nodiscard]] bool make_room(Sequence& sequence, std::int64_t positions);
  void preempt(Sequence& sequence);
  [[nodiscard]] TokenEvent advance(Sequence& sequence, std::span<const float> logits, double now_s);
  [[nodiscard]] TokenLogprobs logprobs_of(const Sampled& sampled) const;
  [[nodiscard]] TokenEvent end_event(Sequence& sequence, FinishReason reason, const std::string& why) const;
  void release(Sequence& sequence);
  void drop_finished();

  EngineOptions options_;
  Backend& backend_;
  TokenBytes token_bytes_;
  const Clock& clock_;
  KvAllocator kv_;
  Sequences waiting_;  // by arrival
  Sequences running_;  // by admission, which is arrival too
  std::vector<Work> plan_;
  std::int64_t budget_ = 0;
  std::vector<SequenceChunk> chunks_;
  std::uint64_t arrivals_ = 0;
  std::int64_t preemptions_ = 0;
  Iteration iteration_;
};

}  // namespace windlass::worker
