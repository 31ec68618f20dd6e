// IterationWindows derives observations of iterations from the counters of any engine. No engine reports how long an iteration
// with a given content took, so observations are computed from the growth of counters between two readings of a worker:
//
//   iterations   their mean time, and the requests, prompts and tokens in them (our worker counts iterations)
//   gaps         the mean time between tokens of a request, at the batch weighted by tokens, and the part due to other prompts
//   first token  time from the start of a request's processing to its first token, or from its arrival if nothing waited
//   measured     what a worker measured itself before it took requests
//
// Times are linear in the content of iterations, so means over windows with a changing batch are as good as steady ones. There
// is one exception: an engine that counts the times of a request only when it ends also includes iterations before the window.
// Then a changing batch adds noise. No model decides whether a window is valid. The first seconds of a worker are slow, also
// after its process restarts.
//
// Pure: times are arguments. Single-threaded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/perf/iteration_estimate.h"

namespace windlass::planner {

// One iteration measured by a worker itself, or measured from outside while it was idle: of a prompt (batch 0), or of decoding
// requests (prompt_tokens 0).
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

// Counters that a worker reported at one time. A counter that it does not report is absent, never 0.
struct WorkerCounters {
  double at_s = 0;
  double run = 0;  // a different value means a different process, with new counters
  std::optional<double> running;
  std::optional<double> waiting;
  std::optional<CountedTime> iterations;    // time per iteration
  bool iterations_only = false;             // other times include what is waited for between phases
  std::optional<CountedTime> token_gaps;    // between two tokens of one request
  bool gaps_at_end = false;                 // counted when a request ends, as its mean
  std::optional<CountedTime> first_tokens;  // from arrival to first token
  std::optional<CountedTime> queueing;      // the part before the first iteration with the request
  std::optional<CountedTime> prefills;      // from there to the first token
  std::optional<double> prompt_seconds;     // the sum of these, if prompts are not counted
  std::optional<double> prompt_tokens;      // computed, not found in a cache
  std::optional<double> generated_tokens;
  std::vector<MeasuredIteration> measured;
};

// `noise_deviation`: relative, for each.
[[nodiscard]] std::vector<IterationObservation> observations_of(const std::vector<MeasuredIteration>& measured,
                                                                double noise_deviation);

class IterationWindows {
 public:
  static constexpr double kWindowS = 5;        // minimum; longer if readings are so rare that a window has fewer than these
  static constexpr double kWindowAtEndS = 15;  // if times are counted at the end of a request
  static constexpr int kLeastReadings = 3;
  static constexpr double kColdS = 15;

  // Processes the worker's newest reading. Returns observations when a window is complete, usually none. `context_tokens`,
  // `prompt_tokens`: means over recent requests, of the context while decoding and of the prompt.
  [[nodiscard]] std::vector<IterationObservation> take(const WorkerCounters& now, double context_tokens, double prompt_tokens);

 private:
  void begin(const WorkerCounters& now);
  [[nodiscard]] std::vector<IterationObservation> close(const WorkerCounters& now, double context_tokens,
                                                        double prompt_tokens) const;

  std::optional<WorkerCounters> first_;
  std::optional<double> last_at_s_;
  double warm_at_s_ = 0;
  double least_running_ = 0, max_running_ = 0, running_sum_ = 0, running_squares_ = 0;
  int readings_ = 0, busy_ = 0;
  bool waited_ = false;  // or may have waited: it does not report it
};

}  // namespace windlass::planner
