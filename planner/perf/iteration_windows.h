// From an engine's counters to observations of its iterations, whichever engine it is. No engine tells how long an iteration
// with so much in it took, so observations are worked out from what has been counted between two readings of one worker:
//
//   iterations   their mean time, and the requests, prompts and tokens in them (our worker counts iterations)
//   gaps         the mean time between a request's tokens, at the batch that a token saw, and the part of others' prompts in it
//   first token  from a request's start of work to its first token, or from its arrival where nothing waited
//   measured     what a worker measured itself before it took requests
//
// Everything is linear in what was in the iterations, so that means over windows in which the batch moved are as good as steady
// ones; only where an engine counts a request's times at its end, and so of iterations from before the window, is the spread of
// the batch a part of the noise. Nothing here asks the model whether to believe a window. A worker's first seconds are cold,
// and so are they again after its process has started again.
//
// Pure: times come in as arguments. Single-threaded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/perf/iteration_estimate.h"

namespace windlass::planner {

// One iteration that a worker measured itself, or that was measured of it while it was idle: of a prompt (batch 0), or of
// requests that decode (prompt_tokens 0).
struct MeasuredIteration {
  int prompt_tokens = 0;
  int batch = 0;
  int context_tokens = 0;
  double seconds = 0;

  bool operator==(const MeasuredIteration&) const = default;
};

// Since the engine started.
struct CountedTime {
  double sum_s = 0;
  double count = 0;
};

// What a worker said of itself at one time. What it does not tell is absent, never 0.
struct WorkerCounters {
  double at_s = 0;
  double run = 0;  // another one: another process, with counters of its own
  std::optional<double> running;
  std::optional<double> waiting;
  std::optional<CountedTime> iterations;    // each of them
  std::optional<CountedTime> token_gaps;    // between two tokens of one request
  bool gaps_at_end = false;                 // counted when a request ends, as its mean
  std::optional<CountedTime> first_tokens;  // from arrival to the first token
  std::optional<CountedTime> queueing;      // of these, before the first iteration with it
  std::optional<CountedTime> prefills;      // from there to the first token
  std::optional<double> prompt_seconds;     // the same in sum, where prompts are not counted
  std::optional<double> prompt_tokens;      // computed, not found in a cache
  std::optional<double> generated_tokens;
  std::vector<MeasuredIteration> measured;
};

// `noise_deviation`: of each, relative.
[[nodiscard]] std::vector<IterationObservation> observations_of(const std::vector<MeasuredIteration>& measured,
                                                                double noise_deviation);

class IterationWindows {
 public:
  static constexpr double kWindowS = 5;        // at least; longer where readings come so seldom that fewer than these are in it
  static constexpr double kWindowAtEndS = 15;  // where times are counted at a request's end
  static constexpr int kLeastReadings = 3;
  static constexpr double kColdS = 15;

  // Takes the worker's newest reading. What it taught: usually nothing, and something whenever a window is complete.
  // `context_tokens`, `prompt_tokens`: mean of recent requests while they decode, and of their prompts.
  [[nodiscard]] std::vector<IterationObservation> take(const WorkerCounters& now, double context_tokens, double prompt_tokens);

 private:
  void begin(const WorkerCounters& now);
  [[nodiscard]] std::vector<IterationObservation> close(const WorkerCounters& now, double context_tokens,
                                                        double prompt_tokens) const;

  std::optional<WorkerCounters> first_;
  std::optional<double> last_at_s_;
  double warm_at_s_ = 0;
  double least_running_ = 0, most_running_ = 0, running_sum_ = 0, running_squares_ = 0;
  int readings_ = 0, busy_ = 0;
  bool waited_ = false;  // or may have: it does not tell
};

}  // namespace windlass::planner
