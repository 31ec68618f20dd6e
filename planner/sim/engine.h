// Engine: the scheduler of one simulated inference worker: which sequences make up each iteration, and what of the KV cache
// they hold.
//
// Iteration-level (Orca, Vidur Section 4.4): begin() chooses the next batch and gives the sums by which a latency model prices
// it; end() says what that iteration produced. Knows neither time nor other workers. Batching:
// - static (FasterTransformer): a batch runs until its last sequence ends; caches are reserved for the whole length
// - Orca: prompts join running decodes at every iteration; caches are reserved for the whole length
// - vLLM: waiting prompts go first in iterations of their own; paged caches; who came last is preempted, and recomputed, when
// pages run out
// - mixed: as vLLM, but prompts share an iteration with the decodes (Splitwise's mixed pool)
// - Sarathi-Serve, and vLLM's since V1: chunks of prompts fill a token budget beside the decodes
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

#include "planner/perf/iteration_model.h"
#include "planner/sim/engine_options.h"

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

class Engine {
 public:
  // A handle of a sequence that this engine holds; reused after the sequence has left.
  using Sequence = int;

  explicit Engine(const EngineOptions& options);

  // Whether a sequence of this length can ever run here: its pages fit when it is alone.
  [[nodiscard]] bool can_hold(int prompt_tokens, int output_tokens) const;

  // A prompt to be prefilled. REQUIRES: can_hold(), with hand_over for no output; both >= 1, with hand_over output_tokens >= 2;
  // prefix_tokens <= prompt_tokens.
  Sequence enqueue(const SequenceSpec& spec);

  // A sequence whose cache comes from elsewhere, with its first token made. Takes pages for it at once, and joins the decodes
  // with join(). Its prefix is not looked up: all of the cache comes. REQUIRES: has_room(); output_tokens >= 2.
  [[nodiscard]] bool has_room(const SequenceSpec& spec) const;
  Sequence reserve(const SequenceSpec& spec);
  void join(Sequence sequence);  // also one that end() gave as prefilled: it is decoded here after all

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
    std::vector<int> finished;        // requests that are done and have left
    std::vector<Sequence> prefilled;  // sequences to be handed over
    int decoded = 0;                  // sequences that made a further token
  };
  // REQUIRES: an iteration is under way. The result lives until the next begin().
  const Outcome& end();

  // Takes every sequence away and gives their requests, in the order of their arrival here: the worker failed.
  [[nodiscard]] std::vector<int> abandon();

  [[nodiscard]] int request_of(Sequence sequence) const { return at(sequence).request; }
  [[nodiscard]] int waiting() const { return static_cast<int>(waiting_.size()); }
  [[nodiscard]] int running() const { return decoding_ + static_cast<int>(prefilling_.size()); }
  [[nodiscard]] int decoding() const { return decoding_; }
  [[nodiscard]] int held() const { return held_; }  // all sequences here
  // Tokens that are to be prefilled, and one for each decode: Splitwise's queue length.
  [[nodiscard]] std::int64_t pending_tokens() const { return waiting_tokens_ + decoding_; }
  [[nodiscard]] std::int64_t free_blocks() const { return free_blocks_; }
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }  // by recompute or swap
  // Prompt tokens that were not computed, because they were cached.
  [[nodiscard]] std::int64_t prefix_hit_tokens() const { return prefix_hit_tokens_; }

 private:
  struct State {
    int request = -1;
    int serial = 0;     // tells a handle's owners apart
    int prompt = 0;     // tokens to prefill, those made before a preemption included
    int output = 0;     // tokens to make in all
    int made = 0;       // tokens made when it joined the decodes (or was preempted)
    int prefilled = 0;  // tokens of the prompt in the cache
    int chunk = 0;      // tokens of the prompt in this iteration
    std::int64_t joined_tick = 0;
    std::int64_t blocks = 0;  // pages it took before it joined; while it decodes they follow from its length
    bool decoding = false;
    bool hand_over = false;
  };
  struct End {
    std::int64_t tick;
    int serial;
    Sequence sequence;

    bool operator>(const End& other) const { return tick != other.tick ? tick > other.tick : serial > other.serial; }
  };

  [[nodiscard]] const State& at(Sequence sequence) const { return states_[static_cast<std::size_t>(sequence)]; }
  [[nodiscard]] State& at(Sequence sequence) { return states_[static_cast<std::size_t>(sequence)]; }
  [[nodiscard]] bool reserves() const { return options_.batching == Batching::kStatic || options_.batching == Batching::kOrca; }
  [[nodiscard]] std::int64_t blocks_of(std::int64_t tokens) const {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  [[nodiscard]] std::int64_t blocks_to_admit(const State& state) const;
  [[nodiscard]] int cached(const State& state) const;  // tokens of a decoding sequence in the cache
  [[nodiscard]] std::size_t page_phase(const State& state) const;

  Sequence make(const SequenceSpec& spec);
  void forget(Sequence sequence);
  [[nodiscard]] bool admit(Sequence sequence);
  void admit_prompts(int budget, bool chunked);
  void add_chunk(Sequence sequence, int tokens);
  void start_decoding(Sequence sequence);
  void stop_decoding(Sequence sequence);
  void take_pages_for_decodes();
  void preempt_last();
  void end_prefills();
  void end_decodes();

  EngineOptions options_;
  std::vector<State> states_;
  std::vector<Sequence> unused_;
  int next_serial_ = 0;
  int held_ = 0;

  std::deque<Sequence> waiting_;      // in the order in which they will be admitted
  std::vector<Sequence> prefilling_;  // admitted, their prompts not done; in the order of admission
  std::int64_t waiting_tokens_ = 0;   // of waiting and prefilling prompts
  std::int64_t free_blocks_ = 0;

  int decoding_ = 0;
  std::int64_t tick_ = 0;           // decode iterations so far
  std::int64_t cached_tokens_ = 0;  // of all decoding sequences
  std::vector<int> starting_page_;  // [p]: decoding sequences that need a page when (p + tick) % block_tokens = 0
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  // stale where the serial has changed or it does not decode
  std::vector<std::pair<Sequence, int>> admitted_;  // with serials, in the order in which they began to decode; stale alike

  planner::Batch batch_;
  bool busy_ = false;
  Outcome outcome_;
  std::vector<int> started_;
  std::int64_t preemptions_ = 0;
  std::int64_t swapped_tokens_ = 0;
  std::int64_t prefix_hit_tokens_ = 0;
};

}  // namespace windlass::sim
