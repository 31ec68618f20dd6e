// Engine: continuous batching per iteration (Yu et al. 2022, Orca) over a paged KV cache (Kwon et al. 2023, vLLM).
//
// Each step() runs one forward pass over one token of every decoding sequence plus as many prompt tokens as fit in the step's
// budget (chunked prefill, so that a long prompt does not stall the others; Agrawal et al. 2024, Sarathi-Serve). Waiting
// requests are admitted in order of arrival while a place is free and the cache has room for the whole prompt. When the cache
// is full, a sequence takes blocks from the youngest sequence that is younger than itself; that one is preempted: it waits and
// is recomputed later. If no younger sequence exists, it waits for the next step. The oldest sequence always advances, so no
// request starves and none fails because the cache is full.
//
// Disaggregated prefill: this engine may compute a prompt for another worker. It then holds the keys and values until that
// worker fetches them, and drops them if a request answered here needs the room; further prompts of this kind wait. It may also
// receive a prompt from another worker: the sequence then holds its blocks and waits, and computes itself whatever does not
// arrive. kv_transfer.h moves the data.
//
// Prefix caching: prompts with a common beginning share the full KV blocks of that beginning, even after the first of them has
// finished, until the room is needed (kv_allocator.h). The last prompt token is always computed, because its logits are needed.
// A preempted sequence finds its own blocks in the same way. A block can be shared from the step that fills it: a backend
// writes all keys and values of a layer before it reads any, so prompts admitted together compute their common part once. Two
// kinds of requests do not share: those of worker chains, because the later workers have caches of their own, and those whose
// prompt another worker computes, because what it sends belongs to one sequence.
//
// Pure logic over Backend and Clock: no threads, no I/O. Called by one thread at a time.
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
  std::int64_t max_context_tokens = 2048;  // prompt plus output; at most the capacity of the cache
  std::int64_t max_batch_tokens = 256;     // per step; at least max_running
  bool prefix_caching = true;
  std::vector<std::int32_t> eos_token_ids = {};
};

struct Iteration {
  double seconds = 0;       // planning, forward pass and sampling
  std::int64_t tokens = 0;  // prompt and output tokens computed
};

// Returns the bytes of a token; empty for tokens without text.
using TokenBytes = std::function<std::string_view(std::int32_t)>;

class Engine {
 public:
  // REQUIRES: backend, clock and both sides of `transfer` outlive the engine; options are within the bounds given above; a
  // request names only sessions of a kind that `transfer` can handle.
  Engine(EngineOptions options, Backend& backend, TokenBytes token_bytes, const Clock& clock, KvTransfer transfer = {});
  ~Engine();

  // Checks whether a request could ever run, whatever the load. Error: kInvalidArgument, naming the rule and the value.
  [[nodiscard]] static Result<void> check(const EngineOptions& options, std::int64_t vocab_size,
                                          const GenerationRequest& request);

  // Queues the request. arrived_s: its arrival on the engine's clock. Errors: those of check(); kResourceExhausted if
  // max_waiting requests already wait.
  [[nodiscard]] Result<void> submit(RequestId id, GenerationRequest request, double arrived_s);

  // Cancels the request and frees its blocks. Returns its final event, or nothing if the request is not here.
  [[nodiscard]] std::optional<TokenEvent> cancel(RequestId id, const std::string& why);

  // Runs one iteration. Returns events in order of admission; empty if there is nothing to do. `planned` is called before the
  // forward pass, when load() already describes this iteration.
  [[nodiscard]] std::vector<TokenEvent> step(const std::function<void()>& planned = nullptr);

  // The other worker has fetched everything the sender announced: frees the session's blocks. Returns the final event, or
  // nothing if the session is gone.
  [[nodiscard]] std::optional<TokenEvent> taken(const std::string& session);
  // The other worker no longer wants the session: like cancel(), but by session name.
  [[nodiscard]] std::optional<TokenEvent> abandoned(const std::string& session);
  // Ends the wait for another worker. If `first` has the first token, the requested keys and values are in the sequence's
  // blocks; if it is an error, the prompt is computed here. Returns the event of the first token, or nothing. Has no effect on
  // a sequence that has lost its blocks meanwhile.
  [[nodiscard]] std::optional<TokenEvent> received(RequestId id, const Result<Sampled>& first);

  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty() && held_.empty(); }
  // True if another step() would do nothing until one of the other calls above changes something: every sequence waits for
  // another worker.
  [[nodiscard]] bool stalled() const { return stalled_; }
  [[nodiscard]] EngineLoad load() const;
  // The last step(); all zero if it had nothing to do.
  [[nodiscard]] const Iteration& last_iteration() const { return iteration_; }
  // How many times a sequence has lost its blocks to another one.
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }
  // Counted when a request is first admitted.
  struct PrefixCounts {
    std::int64_t prompt_tokens = 0;  // prompt tokens looked up
    std::int64_t found = 0;          // of these, tokens already computed, or being computed, by other requests
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
  Sequences running_;                 // by admission, which is also by arrival
  Sequences held_;                    // computed for other workers and not yet fetched; by completion
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
