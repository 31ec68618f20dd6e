// FakeEngine: one worker's continuous batching in time, with the latencies of the planner's own model and no model behind it.
//
// Prompts are prefilled one after the other, in the order they came; while one is, those that decode stand still, as the
// planner's worker_times() has it. All others decode together, one token each an iteration. Text leaves in pieces of
// `piece_tokens`, but for the first token, so that a thousand workers cost little; the last piece leaves when the last token is
// made. Pure: time comes in.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "planner/perf/linear_model.h"

namespace windlass::testing {

struct FakeEngineOptions {
  planner::LinearCoefficients times;
  int max_concurrency = 1;  // requests prefilled or decoded at once; more wait
  int max_waiting = 64;     // more than this are refused
  int piece_tokens = 32;
};

struct Emission {
  std::int64_t request = 0;
  int tokens = 0;     // new ones
  int generated = 0;  // all so far
  bool finished = false;
  double at_s = 0;
};

class FakeEngine {
 public:
  explicit FakeEngine(const FakeEngineOptions& options) : options_(options) {}

  // False: full. REQUIRES: now_s does not fall from call to call; tokens at least 1.
  [[nodiscard]] bool submit(std::int64_t request, int input_tokens, int output_tokens, double now_s);
  void cancel(std::int64_t request, double now_s);

  // Everything that has happened until now, in order.
  [[nodiscard]] std::vector<Emission> advance(double now_s);
  // When something happens next; nullopt: nothing under way.
  [[nodiscard]] std::optional<double> next_event_s() const;

  [[nodiscard]] int running() const { return static_cast<int>(decoding_.size()) + (prefilling_ ? 1 : 0); }
  [[nodiscard]] int waiting() const { return static_cast<int>(waiting_.size()); }
  // Share of the KV cache in use.
  [[nodiscard]] double kv_use() const;

 private:
  struct Sequence {
    std::int64_t request = 0;
    int input = 0;
    int output = 0;
    int generated = 0;
    int emitted = 0;
  };

  void begin_prefill();
  [[nodiscard]] double iteration_s() const;
  [[nodiscard]] int steps_to_next() const;  // iterations until a piece is full or a request ends
  void emit(Sequence& sequence, double at_s, std::vector<Emission>& out) const;

  FakeEngineOptions options_;
  double now_s_ = 0;  // simulated so far
  std::deque<Sequence> waiting_;
  std::optional<Sequence> prefilling_;
  double prefill_end_s_ = 0;
  std::vector<Sequence> decoding_;
};

}  // namespace windlass::testing
