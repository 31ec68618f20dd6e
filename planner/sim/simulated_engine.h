// SimulatedEngine simulates the scheduler of one inference worker: which sequences make up each iteration, and which pages of
// the KV cache they hold.
//
// Iteration-level (Orca; Vidur Section 4.4): begin() chooses the next batch and returns the sums from which a latency model
// computes its duration; end() returns what that iteration produced. The engine knows neither time nor other workers.
//
// Batching:
// - static (FasterTransformer): a batch takes the requests waiting when it begins, as far as sequences and memory allow. Their
//   prompts run in as many iterations as the token budget requires; then it decodes until its last sequence ends. Finished
//   sequences stay until then: they are padded, cost time in every iteration, and are returned with the others. Caches are
//   reserved for the whole length
// - Orca: prompts join running decodes at every iteration; caches are reserved for the whole length
// - vLLM: waiting prompts go first, in iterations of their own; paged caches; when pages run out, the sequence that began to
//   decode last is preempted
// - mixed: like vLLM, but prompts share an iteration with the decodes (Splitwise's mixed pool)
// - Sarathi-Serve: chunks of prompts fill a token budget next to the decodes
// - vLLM V1, the current one: like Sarathi-Serve, but preempts the sequence admitted last, a running prompt before any decode,
//   and an iteration that preempts admits nothing. Prefix caching and no watermark are its defaults, with_defaults_of(). The
//   real one takes a prompt's pages chunk by chunk; here all are taken at admission
//
// Other policies:
// - recompute (vLLM): a preempted sequence goes before all waiting ones
// - swap (vLLM): its cache moves to host memory if there are pages, and is recomputed otherwise. Caches return in FIFO order,
//   unshared, in decode iterations that preempt nothing, once their pages and one more are free above the watermark. While any
//   cache is swapped out, no prompt is admitted and no cache from another worker has room
// - scheduling ahead (vLLM, SGLang, TensorRT-LLM): the next iteration is prepared before one ends, so a prompt that comes
//   during an iteration, or as it ends, is not in the next one, unless that one would be empty
// - prefixes (vLLM, kv_pages.h): a prompt skips the full pages of its prefix that are cached at admission, except its last
//   token. The end of an iteration publishes the prefix pages it computed; a sequence's other pages are not kept when it leaves
// - prompt order (TetriInfer Section 3.3.1): by arrival, or shortest or longest first within windows
// - decode admission (TetriInfer Section 3.4, working_set.h): for prompts that will decode here and for incoming caches
//
// An iteration costs O(1), plus O(log n) per sequence that joins or leaves, not O(n): a decoding sequence's length, next page
// and end are computed from when it joined. Deterministic; not thread-safe.
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

// Input of one sequence.
struct SequenceSpec {
  int request = -1;  // the caller's id
  int prompt_tokens = 0;
  int output_tokens = 0;
  int predicted_output_tokens = 0;  // output length known to admission; 0: output_tokens
  int prefix = -1;                  // id of a prefix shared with other prompts; -1: none
  int prefix_tokens = 0;            // length of the prefix in this prompt; another prompt's prefix of this id may be longer and
                                    // then starts with this one
  bool hand_over = false;           // ends here with its first token; its pages stay until release()
};

class SimulatedEngine {
 public:
  // Handle of a sequence in this engine; reused after the sequence has left.
  using Sequence = int;

  explicit SimulatedEngine(const planner::EngineSettings& options);

  // Whether a sequence of this length can ever run here, that is, its pages fit when it is alone.
  [[nodiscard]] bool can_hold(int prompt_tokens, int output_tokens) const;

  // Adds a prompt to prefill. REQUIRES: can_hold(), for hand_over without output; both lengths >= 1, with hand_over
  // output_tokens >= 2; 0 <= prefix_tokens <= prompt_tokens.
  Sequence enqueue(const SequenceSpec& spec);

  // Adds a sequence whose cache comes from another worker, with its first token made. Takes its pages immediately; join() lets
  // it decode. Its prefix is not looked up: the whole cache is transferred. REQUIRES: has_room(); output_tokens >= 2.
  [[nodiscard]] bool has_room(const SequenceSpec& spec) const;
  Sequence reserve(const SequenceSpec& spec);
  // Decodes the sequence from the next iteration on. Also for one that end() returned as prefilled and that stays here after
  // all.
  void join(Sequence sequence);

  // Frees the pages of a handed-over sequence. REQUIRES: end() returned it as prefilled.
  void release(Sequence sequence);

  // Begins an iteration and returns its sums, or none if there is nothing to run. REQUIRES: no iteration is running.
  [[nodiscard]] std::optional<planner::Batch> begin();
  // Requests whose prompts this iteration is the first to process; valid until the next begin().
  [[nodiscard]] std::span<const int> started() const { return started_; }
  // KV tokens that this iteration moves between GPU and host, both directions together; valid until the next begin(). The
  // caller computes the time.
  [[nodiscard]] std::int64_t swapped_tokens() const { return swapped_tokens_; }

  struct Outcome {
    std::vector<int> first_tokens;    // requests whose first token this iteration made
    std::vector<int> finished;        // requests that are done and have left; static: those of the batch, in order of arrival
    std::vector<Sequence> prefilled;  // sequences to be handed over
    int decoded = 0;                  // sequences that produced another token
  };
  // REQUIRES: an iteration is running. The result is valid until the next begin().
  const Outcome& end();

  // Removes every sequence, because the worker failed, and returns their requests in order of arrival here. Counters continue.
  [[nodiscard]] std::vector<int> abandon();

  [[nodiscard]] int request_of(Sequence sequence) const { return at(sequence).request; }
  [[nodiscard]] int waiting() const { return static_cast<int>(late_.size() + arrived_.size() + waiting_.size()); }
  // Static: decoding() and pending_tokens() include finished sequences that stay until their batch ends.
  [[nodiscard]] int running() const { return decoding_ + static_cast<int>(prefilling_.size()); }
  [[nodiscard]] int decoding() const { return decoding_; }
  [[nodiscard]] int swapped() const { return away_; }  // sequences whose caches are in host memory
  [[nodiscard]] int held() const { return held_; }     // all sequences here
  // Tokens to prefill, plus one for each decode: Splitwise's queue length.
  [[nodiscard]] std::int64_t pending_tokens() const { return waiting_tokens_ + decoding_; }
  [[nodiscard]] std::int64_t free_blocks() const { return pages_.free(); }  // includes cached pages that no sequence uses
  [[nodiscard]] std::int64_t host_free_blocks() const { return host_free_; }
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }  // by recomputing or swapping
  // Prompt tokens that were not computed because they were cached.
  [[nodiscard]] std::int64_t prefix_hit_tokens() const { return prefix_hit_tokens_; }

 private:
  struct State {  // fits one cache line
    int request = -1;
    int serial = 0;     // distinguishes successive owners of a handle, and one owner before and after a preemption
    int arrival = 0;    // its first serial
    int prompt = 0;     // tokens to prefill, including those made before a preemption
    int output = 0;     // tokens to make in total
    int predicted = 0;  // the same, as admission knows it
    int made = 0;       // tokens made when it joined the decodes (or was preempted)
    int prefilled = 0;  // tokens of the prompt in the cache
    int chunk = 0;      // tokens of the prompt in this iteration
    int prefix = -1;    // none if prefixes are not cached
    int prefix_tokens = 0;
    int shared = 0;                 // pages of its prefix that it uses
    int blocks = 0;                 // own pages, taken before it joined; while it decodes they are computed from its length
    int page_phase = 0;             // in starting_page_, while it decodes
    std::uint32_t joined_tick = 0;  // modulo 2^32, which is longer than any sequence
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
  // Pages that a cache takes before its first decode iteration here, including those for that iteration.
  [[nodiscard]] std::int64_t blocks_at_first(std::int64_t tokens, std::int64_t tokens_left) const {
    return blocks_of(reserves_ ? tokens + tokens_left : tokens);
  }
  [[nodiscard]] std::int64_t blocks_for_next(std::int64_t tokens, std::int64_t tokens_left) const;
  [[nodiscard]] std::int64_t predicted_growth(std::int64_t tokens, std::int64_t tokens_left) const;
  [[nodiscard]] std::int64_t watermark() const { return holding_ == 0 ? 0 : watermark_; }
  [[nodiscard]] int cached_prefix(const State& state) const;  // pages; REQUIRES: it has a prefix
  // For a decoding sequence: tokens made since it joined, and tokens in its cache.
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
  void form_batch();
  void see(Sequence sequence);
  void see_late_prompts();
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

  // Fields that every iteration uses are adjacent: a thousand engines do not fit into a processor's cache.
  planner::EngineSettings options_;
  bool chunks_;       // prefills prompts in chunks
  bool reserves_;     // reserves caches for the whole length
  bool static_;       // no sequence leaves a batch before its end
  bool looks_ahead_;  // admission uses a working set
  bool busy_ = false;
  bool working_ = false;    // since an iteration began, until there is nothing to run
  bool preempted_ = false;  // in this iteration
  int held_ = 0;
  int holding_ = 0;  // part of it that holds pages
  int away_ = 0;     // part of it that is swapped out
  int decoding_ = 0;
  int done_ = 0;                     // static: finished sequences in the batch
  int forming_ = 0;                  // static: sequences that may still join the batch being formed
  std::int64_t tick_ = 0;            // decode iterations so far
  std::size_t page_now_ = 0;         // index in starting_page_ of the sequences that need a page now: (-tick) % block_tokens
  std::int64_t cached_tokens_ = 0;   // of all decoding sequences
  std::int64_t waiting_tokens_ = 0;  // tokens to prefill
  std::int64_t watermark_ = 0;       // pages that new prompts must leave free
  std::int64_t swapped_tokens_ = 0;
  KvPages pages_;
  std::vector<int> starting_page_;  // [p]: decoding sequences that need a page when (p + tick) % block_tokens = 0
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  // some are stale
  std::vector<std::pair<Sequence, int>> admitted_;  // with serials, in the order in which they began to decode; some are stale
  std::vector<Sequence> prefilling_;                // admitted, prompts not finished; in order of admission
  std::vector<Sequence> joining_;                   // during an iteration
  std::deque<Sequence> waiting_;                    // in order of admission to come
  planner::Batch batch_;
  Outcome outcome_;
  std::vector<int> started_;
  std::deque<Sequence> swapped_;
  std::vector<State> states_;

  std::vector<Sequence> late_;    // came after the next iteration was prepared
  std::deque<Sequence> arrived_;  // not yet in a window; in order of arrival
  std::vector<Sequence> unused_;
  int next_serial_ = 0;
  std::int64_t host_free_ = 0;
  std::int64_t preemptions_ = 0;
  std::int64_t prefix_hit_tokens_ = 0;
  WorkingSet working_set_;  // empty unless admission looks ahead
};

}  // namespace windlass::sim
