// FakeEngine: simulates one worker's continuous batching over time, with the latencies of the planner's own model and without a
// language model.
//
// Prompts are prefilled one at a time, in order of arrival. Meanwhile decoding pauses, as in the planner's worker_times(). All
// other requests decode together, one token per iteration. Except for the first token, text is sent in pieces of
// `piece_tokens`, so that a thousand workers are cheap; the last piece is sent with the last token. Pure: the caller passes the
// time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "planner/perf/linear_model.h"

namespace windlass::testing {

struct FakeEngineOptions {
  planner::LinearCoefficients times;
  int max_concurrency = 1;  // requests in prefill or decode at the same time; more wait
  int max_waiting = 64;     // waiting requests; more are refused
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

  // False: full. REQUIRES: now_s never decreases between calls; tokens at least 1.
  [[nodiscard]] bool submit(std::int64_t request, int input_tokens, int output_tokens, double now_s);
  void cancel(std::int64_t request, double now_s);

  // Everything that has happened until now, in order.
  [[nodiscard]] std::vector<Emission> advance(double now_s);
  // Time of the next event; nullopt if nothing is running.
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
