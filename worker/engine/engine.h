// Engine: continuous batching at the level of iterations (Yu et al. 2022, Orca) over a paged KV cache (Kwon et al. 2023, vLLM).
//
// Every step() runs one forward pass over: one token of each decoding sequence, then as many prompt tokens as the step's budget
// leaves (Agrawal et al. 2024, Sarathi-Serve: chunked prefill, so that a long prompt does not stop the others). Waiting
// requests are admitted first come first served while there is a place and the cache has room for the whole prompt. When the
// cache runs out, a sequence takes blocks from the youngest younger one, which goes back to wait and is computed again later;
// if there is none, it waits a step. The oldest sequence always advances, so nothing starves and nothing fails for want of
// cache.
//
// A prompt may be computed here for another worker: its keys and values are then held until they are taken, and are given up
// where a request that is answered here needs the room; other prompts of that kind wait. Or it is received from one: its
// sequence holds its blocks and waits; what does not arrive is computed here. kv_transfer.h moves them.
//
// Prompts that begin alike share what is in the cache of their common full blocks, also after the first of them is over, until
// the room is needed (kv_allocator.h); the last token of a prompt is always computed, for its logits. A preempted sequence
// finds its own blocks again that way. A block can be shared from the step on that fills it: layer by layer, a backend writes
// all keys and values before it reads any, so prompts that are admitted together compute what they have in common once.
// Requests of chains of workers do without: the later workers have caches of their own; so do prompts that another worker
// computes, and what it sends is nobody else's.
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
#include "worker/engine/kv_transfer.h"
#include "worker/engine/request.h"
#include "worker/engine/text_stream.h"

namespace windlass::worker {

struct EngineOptions {
  std::int64_t max_running = 8;
  std::int64_t max_waiting = 16;
  std::int64_t max_context_tokens = 2048;  // prompt and output together; at most what the cache holds
  std::int64_t max_batch_tokens = 256;     // per step; at least max_running
  bool prefix_caching = true;
  std::vector<std::int32_t> eos_token_ids = {};
};

struct Iteration {
  double seconds = 0;       // planning, forward pass and sampling
  std::int64_t tokens = 0;  // computed, of prompts and answers
};

// The bytes of a token; empty for tokens without text.
using TokenBytes = std::function<std::string_view(std::int32_t)>;

class Engine {
 public:
  // REQUIRES: backend, clock and transfer's ends outlive this; options are as their comments say; requests name no
  // session of a kind that transfer has no end for.
  Engine(EngineOptions options, Backend& backend, TokenBytes token_bytes, const Clock& clock, KvTransfer transfer = {});
  ~Engine();

  // The request's own fitness, whatever the load. Error: kInvalidArgument, naming found and allowed.
  [[nodiscard]] static Result<void> check(const EngineOptions& options, std::int64_t vocab_size,
                                          const GenerationRequest& request);

  // Queues the request. Errors: those of check(); kResourceExhausted when max_waiting others wait.
  // arrived_s: when it came in, on the engine's clock.
  [[nodiscard]] Result<void> submit(RequestId id, GenerationRequest request, double arrived_s);

  // Ends the request at once; its blocks are free again. The event of its end, or nothing if it is not here.
  [[nodiscard]] std::optional<TokenEvent> cancel(RequestId id, const std::string& why);

  // One iteration. Events in the order of admission; empty when there is nothing to do. `planned`: called once load() is that
  // of the iteration that is about to be computed.
  [[nodiscard]] std::vector<TokenEvent> step(const std::function<void()>& planned = nullptr);

  // Another worker has all of what the sender was told of: its blocks are free again. The event of its end, or nothing if it is
  // not here any more.
  [[nodiscard]] std::optional<TokenEvent> taken(const std::string& session);
  // Nobody asks for it any more: as cancel(), by the session's name.
  [[nodiscard]] std::optional<TokenEvent> abandoned(const std::string& session);
  // What the receiver was asked for is in its blocks, with the first token; or an error, and the prompt is computed here. The
  // first token's event, or nothing. Too late for a sequence that has lost its blocks, it changes nothing.
  [[nodiscard]] std::optional<TokenEvent> received(RequestId id, const Result<Sampled>& first);

  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty() && held_.empty(); }
  // Another step() does nothing until a call of the others above has changed something: all wait for other workers.
  [[nodiscard]] bool stalled() const { return stalled_; }
  [[nodiscard]] EngineLoad load() const;
  // Of the last step(); all zero when it had nothing to do.
  [[nodiscard]] const Iteration& last_iteration() const { return iteration_; }
  // How often a sequence lost its blocks to another one.
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }
  // Of requests as they were admitted first.
  struct PrefixCounts {
    std::int64_t prompt_tokens = 0;  // of prompts that were looked for
    std::int64_t found = 0;          // of these tokens, those that others compute or have computed
  };
  [[nodiscard]] const PrefixCounts& prefix_counts() const { return prefix_counts_; }

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
  [[nodiscard]] bool shares_prefix(const Sequence& sequence) const;
  [[nodiscard]] bool reserve(Sequence& sequence);
  void name_blocks(const Work& work);
  void unname_uncomputed(Sequence& sequence);
  void take_from_held(std::int64_t blocks);
  void receive(Sequence& sequence);
  [[nodiscard]] bool make_room(Sequence& sequence, std::int64_t positions);
  void preempt(Sequence& sequence);
  [[nodiscard]] TokenEvent end(Sequences& list, Sequences::iterator at, FinishReason reason, const std::string& why);
  void give_up(Sequences& list, const Sequence& sequence);
  [[nodiscard]] TokenEvent advance(Sequence& sequence, const Result<Sampled>& sampled, double now_s);
  [[nodiscard]] Result<Sampled> sample(Sequence& sequence, std::span<const float> logits, std::size_t row);
  [[nodiscard]] TokenEvent extend(Sequence& sequence, const Sampled& sampled, double now_s);
  [[nodiscard]] TokenEvent hold(Sequence& sequence, const Sampled& first, double now_s);
  [[nodiscard]] static TokenEvent event_of(const Sequence& sequence);
  void tell_computed(std::int64_t layer) const;
  [[nodiscard]] TokenLogprobs logprobs_of(const Sampled& sampled) const;
  [[nodiscard]] TokenEvent end_event(Sequence& sequence, FinishReason reason, const std::string& why) const;
  void release(Sequence& sequence);
  void drop_finished();

  EngineOptions options_;
  Backend& backend_;
  TokenBytes token_bytes_;
  const Clock& clock_;
  KvTransfer transfer_;
  KvAllocator kv_;
  Sequences waiting_;                 // by arrival
  Sequences running_;                 // by admission, which is arrival too
  Sequences held_;                    // computed for other workers, until they are taken; by completion
  std::vector<TokenEvent> given_up_;  // in this step
  std::vector<Work> plan_;
  std::int64_t budget_ = 0;
  std::vector<SequenceChunk> chunks_;
  std::uint64_t arrivals_ = 0;
  std::int64_t preemptions_ = 0;
  PrefixCounts prefix_counts_;
  bool stalled_ = false;
  Iteration iteration_;
};

}  // namespace windlass::worker
