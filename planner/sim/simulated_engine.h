// SimulatedEngine: the scheduler of one simulated inference worker: which sequences make up each iteration, and what of the KV
// cache they hold.
//
// Iteration-level (Orca, Vidur Section 4.4): begin() chooses the next batch and gives the sums by which a latency model prices
// it; end() says what that iteration produced. Knows neither time nor other workers. Batching:
// - static (FasterTransformer): a batch takes who waits when it begins, as far as sequences and memory reach, their prompts in
//   as many iterations as the token budget asks; then it decodes until its last sequence ends. Until then all stay: who is
//   done is padded, paid for in every iteration, and returned with the others; caches are reserved for the whole length
// - Orca: prompts join running decodes at every iteration; caches are reserved for the whole length
// - vLLM: waiting prompts go first in iterations of their own; paged caches; who began to decode last is preempted when pages
//   run out
// - mixed: as vLLM, but prompts share an iteration with the decodes (Splitwise's mixed pool)
// - Sarathi-Serve: chunks of prompts fill a token budget beside the decodes
// - vLLM V1, today's: as Sarathi-Serve, but who was admitted last is preempted, a prompt under way before any decode, and an
//   iteration that preempts admits nobody; prefix caching and no watermark are its defaults, with_defaults_of(). It takes a
//   prompt's pages chunk by chunk; here all of them when it is admitted
//
// Policies beside it:
// - recompute (vLLM): a preempted sequence goes before all that wait
// - swap (vLLM): its cache moves to host memory if that has the pages, and is recomputed otherwise; caches come back first in
//   first out, unshared, in decode iterations that preempt nobody, once their pages and one more are free beside the watermark;
//   while any is away no prompt is admitted and no cache from elsewhere has room
// - prefixes (vLLM, kv_pages.h): a prompt skips the full pages of its prefix that are cached when it is admitted, all but its
//   last token at most; an iteration's end publishes what it computed of a prefix; what a sequence holds beyond that is not
//   kept when it leaves
// - prompt order (TetriInfer Section 3.3.1): by arrival, shortest or longest first in windows
// - decode admission (TetriInfer Section 3.4, working_set.h): of prompts that will decode here and of caches that come
//
// An iteration costs O(1) plus O(log n) per sequence that joins or leaves, not O(n): a decoding sequence's length, its next
// page and its end follow from when it joined. Deterministic, not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "planner/deployment/engine_settings.h"
#include "planner/perf/iteration_model.h"
#include "planner/sim/kv_pages.h"
#include "planner/sim/working_set.h"

namespace windlass::sim {

// What an engine is told of a sequence.
struct SequenceSpec {
  int request = -1;  // the caller's
  int prompt_tokens = 0;
  int output_tokens = 0;
  int predicted_output_tokens = 0;  // all that admission may know of the output; 0: output_tokens
  int prefix = -1;                  // id of a prefix that other prompts start with too; -1: none
  int prefix_tokens = 0;            // of the prompt; another's prefix of this id may be longer, and then starts with this one
  bool hand_over = false;           // done here with its first token, its pages kept until release()
};

class SimulatedEngine {
 public:
  // A handle of a sequence that this engine holds; reused after the sequence has left.
  using Sequence = int;

  explicit SimulatedEngine(const planner::EngineSettings& options);

  // Whether a sequence of this length can ever run here: its pages fit when it is alone.
  [[nodiscard]] bool can_hold(int prompt_tokens, int output_tokens) const;

  // A prompt to be prefilled. REQUIRES: can_hold(), with hand_over for no output; both >= 1, with hand_over output_tokens >= 2;
  // 0 <= prefix_tokens <= prompt_tokens.
  Sequence enqueue(const SequenceSpec& spec);

  // A sequence whose cache comes from elsewhere, with its first token made. Takes pages for it at once, and joins the decodes
  // with join(). Its prefix is not looked up: all of the cache comes. REQUIRES: has_room(); output_tokens >= 2.
  [[nodiscard]] bool has_room(const SequenceSpec& spec) const;
  Sequence reserve(const SequenceSpec& spec);
  // From the next iteration on; also one that end() gave as prefilled: it is decoded here after all.
  void join(Sequence sequence);

  // Lets a handed over sequence's pages go. REQUIRES: end() gave it as prefilled.
  void release(Sequence sequence);

  // Begins an iteration: its sums, or none when there is nothing to run. REQUIRES: none is under way.
  [[nodiscard]] std::optional<planner::Batch> begin();
  // Requests whose prompts this iteration is the first to process; until the next begin().
  [[nodiscard]] std::span<const int> started() const { return started_; }
  // KV tokens that this iteration moves between GPU and host, both ways together; until the next begin(). The caller prices
  // them.
  [[nodiscard]] std::int64_t swapped_tokens() const { return swapped_tokens_; }

  struct Outcome {
    std::vector<int> first_tokens;    // requests whose first token this iteration made
    std::vector<int> finished;        // requests that are done and have left; static: the batch's, in order of arrival
    std::vector<Sequence> prefilled;  // sequences to be handed over
    int decoded = 0;                  // sequences that made a further token
  };
  // REQUIRES: an iteration is under way. The result lives until the next begin().
  const Outcome& end();

  // Takes every sequence away and gives their requests, in the order of their arrival here: the worker failed. The counts go
  // on.
  [[nodiscard]] std::vector<int> abandon();

  [[nodiscard]] int request_of(Sequence sequence) const { return at(sequence).request; }
  [[nodiscard]] int waiting() const { return static_cast<int>(arrived_.size() + waiting_.size()); }
  // Static: with those that are done and stay to their batch's end, in decoding() and pending_tokens() too.
  [[nodiscard]] int running() const { return decoding_ + static_cast<int>(prefilling_.size()); }
  [[nodiscard]] int decoding() const { return decoding_; }
  [[nodiscard]] int swapped() const { return away_; }  // whose caches are in host memory
  [[nodiscard]] int held() const { return held_; }     // all sequences here
  // Tokens that are to be prefilled, and one for each decode: Splitwise's queue length.
  [[nodiscard]] std::int64_t pending_tokens() const { return waiting_tokens_ + decoding_; }
  [[nodiscard]] std::int64_t free_blocks() const { return pages_.free(); }  // cached pages that nobody uses among them
  [[nodiscard]] std::int64_t host_free_blocks() const { return host_free_; }
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }  // by recompute or swap
  // Prompt tokens that were not computed, because they were cached.
  [[nodiscard]] std::int64_t prefix_hit_tokens() const { return prefix_hit_tokens_; }

 private:
  struct State {  // of one cache line
    int request = -1;
    int serial = 0;     // tells a handle's owners apart, and an owner before its preemption from itself after it
    int arrival = 0;    // its first serial
    int prompt = 0;     // tokens to prefill, those made before a preemption included
    int output = 0;     // tokens to make in all
    int predicted = 0;  // the same, as far as admission knows
    int made = 0;       // tokens made when it joined the decodes (or was preempted)
    int prefilled = 0;  // tokens of the prompt in the cache
    int chunk = 0;      // tokens of the prompt in this iteration
    int prefix = -1;    // none where prefixes are not cached
    int prefix_tokens = 0;
    int shared = 0;                 // pages it uses of its prefix
    int blocks = 0;                 // of its own, taken before it joined; while it decodes they follow from its length
    int page_phase = 0;             // in starting_page_, while it decodes
    std::uint32_t joined_tick = 0;  // modulo 2^32, which no sequence outlasts
    bool decoding = false;
    bool hand_over = false;
    bool started = false;
  };
  struct End {
    std::int64_t tick;
    int serial;
    Sequence sequence;

    bool operator>(const End& other) const { return tick != other.tick ? tick > other.tick : serial > other.serial; }
  };

  [[nodiscard]] const State& at(Sequence sequence) const { return states_[static_cast<std::size_t>(sequence)]; }
  [[nodiscard]] State& at(Sequence sequence) { return states_[static_cast<std::size_t>(sequence)]; }
  [[nodiscard]] std::int64_t blocks_of(std::int64_t tokens) const {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  // Pages that a cache takes before its first decode iteration here, and those with which it can go through that.
  [[nodiscard]] std::int64_t blocks_at_first(std::int64_t tokens, std::int64_t tokens_left) const {
    return blocks_of(reserves_ ? tokens + tokens_left : tokens);
  }
  [[nodiscard]] std::int64_t blocks_for_next(std::int64_t tokens, std::int64_t tokens_left) const;
  [[nodiscard]] std::int64_t predicted_growth(std::int64_t tokens, std::int64_t tokens_left) const;
  [[nodiscard]] std::int64_t watermark() const { return holding_ == 0 ? 0 : watermark_; }
  [[nodiscard]] int cached_prefix(const State& state) const;  // pages; REQUIRES: it has a prefix
  // Of a decoding sequence: tokens that it has made since it joined, and tokens in its cache.
  [[nodiscard]] int decoded(const State& state) const {
    return static_cast<int>(static_cast<std::uint32_t>(tick_) - state.joined_tick);
  }
  [[nodiscard]] int cached(const State& state) const { return state.prompt + decoded(state); }
  [[nodiscard]] bool stale(Sequence sequence, int serial) const {
    return at(sequence).serial != serial || !at(sequence).decoding;
  }

  Sequence make(const SequenceSpec& spec);
  void forget(Sequence sequence);
  void sort_window();
  [[nodiscard]] bool leaves_enough(const State& state, int shared, std::int64_t own) const;
  void admit(Sequence sequence, int shared, std::int64_t own);
  void form_static_batch();
  bool admit_prompts(int budget);
  void begin_decodes();
  void add_chunk(Sequence sequence, int tokens);
  void publish_prefix(State& state);
  void give_back(Sequence sequence, std::int64_t blocks);
  void start_decoding(Sequence sequence);
  void stop_decoding(Sequence sequence);
  void take_pages_for_decodes();
  void preempt_last();
  [[nodiscard]] bool preempt_prompt();
  void swap_in();
  void end_prefills();
  void end_decodes();
  void end_static_batch();

  // What every iteration touches stands together: a thousand engines do not fit into a processor's cache.
  planner::EngineSettings options_;
  bool chunks_;       // prompts in chunks
  bool reserves_;     // caches for their whole length
  bool static_;       // batches that nobody leaves
  bool looks_ahead_;  // keeps a working set
  bool busy_ = false;
  bool preempted_ = false;  // in this iteration
  int held_ = 0;
  int holding_ = 0;  // of these, with pages
  int away_ = 0;     // of these, swapped
  int decoding_ = 0;
  int done_ = 0;                     // static: of these, with all their tokens made
  int forming_ = 0;                  // static: sequences that may still be admitted to the batch that forms
  std::int64_t tick_ = 0;            // decode iterations so far
  std::size_t page_now_ = 0;         // where starting_page_ says who needs a page now: (-tick) % block_tokens
  std::int64_t cached_tokens_ = 0;   // of all decoding sequences
  std::int64_t waiting_tokens_ = 0;  // to be prefilled
  std::int64_t watermark_ = 0;       // pages that new prompts leave free
  std::int64_t swapped_tokens_ = 0;
  KvPages pages_;
  std::vector<int> starting_page_;  // [p]: decoding sequences that need a page when (p + tick) % block_tokens = 0
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  // some stale
  std::vector<std::pair<Sequence, int>> admitted_;  // with serials, in the order in which they began to decode; some stale
  std::vector<Sequence> prefilling_;                // admitted, their prompts not done; in the order of admission
  std::vector<Sequence> joining_;                   // while an iteration is under way
  std::deque<Sequence> waiting_;                    // in the order in which they will be admitted
  planner::Batch batch_;
  Outcome outcome_;
  std::vector<int> started_;
  std::deque<Sequence> swapped_;
  std::vector<State> states_;

  std::deque<Sequence> arrived_;  // not yet in a window; in the order of arrival
  std::vector<Sequence> unused_;
  int next_serial_ = 0;
  std::int64_t host_free_ = 0;
  std::int64_t preemptions_ = 0;
  std::int64_t prefix_hit_tokens_ = 0;
  WorkingSet working_set_;  // empty unless it looks ahead
};

}  // namespace windlass::sim
