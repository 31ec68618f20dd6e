// Derives observations of iterations from engine counters; see iteration_windows.h.
#include "planner/perf/iteration_windows.h"

#include <algorithm>
#include <cmath>

namespace windlass::planner {
namespace {

constexpr double kUnderWay = 0.5;         // part of an iteration that a new request waits for on average
constexpr double kFirstTokenNoise = 0.3;  // requests that arrive together delay each other
constexpr double kPrefillNoise = 0.15;
constexpr double kCrowdedNoise = 0.5;  // and share iterations, if others were waiting before them
constexpr double kGapNoise = 0.05;
constexpr double kMeasuredNoise = 0.03;
constexpr double kSpreadNoise = 0.5;  // as a fraction of the spread of the batch, if times are from earlier iterations
constexpr double kIdleBatch = 0.3;    // mean requests: below it, requests run alone
constexpr double kFewestIterations = 5;

// Growth of a counter; nullopt after a restart, or if a reading lacks it.
std::optional<double> grown(const std::optional<double>& before, const std::optional<double>& now) {
  if (!before || !now || !(*now >= *before)) return std::nullopt;
  return *now - *before;
}

std::optional<CountedTime> grown(const std::optional<CountedTime>& before, const std::optional<CountedTime>& now) {
  if (!before || !now || !(now->sum_s >= before->sum_s) || !(now->count >= before->count)) return std::nullopt;
  return CountedTime{now->sum_s - before->sum_s, now->count - before->count};
}

bool fell(const WorkerCounters& before, const WorkerCounters& now) {
  const auto less = [](const auto& a, const auto& b) { return a && b && !grown(a, b); };
  return before.run != now.run || less(before.prompt_tokens, now.prompt_tokens) ||
         less(before.generated_tokens, now.generated_tokens) || less(before.token_gaps, now.token_gaps) ||
         less(before.first_tokens, now.first_tokens) || less(before.iterations, now.iterations);
}

// Growth of a worker's counters in a window.
struct Growth {
  std::optional<CountedTime> first_tokens, prefills, gaps, queueing, iterations;
  std::optional<double> prompt_seconds, generated;
  double prompts = 0;
  double prompt_tokens = 0;   // of all these prompts
  double context_tokens = 0;  // mean per decoding request

  [[nodiscard]] bool any_gap() const { return gaps && gaps->count > 0 && gaps->sum_s > 0; }
};

Growth growth(const WorkerCounters& before, const WorkerCounters& now, double context_tokens, double prompt_tokens) {
  Growth out;
  out.first_tokens = grown(before.first_tokens, now.first_tokens);
  out.prefills = grown(before.prefills, now.prefills);
  out.gaps = grown(before.token_gaps, now.token_gaps);
  out.queueing = grown(before.queueing, now.queueing);
  out.iterations = grown(before.iterations, now.iterations);
  out.prompt_seconds = grown(before.prompt_seconds, now.prompt_seconds);
  out.generated = grown(before.generated_tokens, now.generated_tokens);
  const auto prompted = grown(before.prompt_tokens, now.prompt_tokens);
  out.prompts = out.first_tokens ? out.first_tokens->count : out.prefills ? out.prefills->count : 0;
  if (!out.first_tokens && !out.prefills && prompted && prompt_tokens > 0) out.prompts = *prompted / prompt_tokens;
  out.prompt_tokens = out.prompts > 0 && prompted && *prompted > 0 ? *prompted : out.prompts * prompt_tokens;
  out.context_tokens = context_tokens;
  return out;
}

// For workers that count iterations.
IterationObservation mean_iteration(const Growth& window) {
  const CountedTime& iterations = *window.iterations;
  IterationObservation observation;
  observation.seconds = iterations.sum_s / iterations.count;
  observation.count = iterations.count;
  // The first token of a prompt comes in the prompt's own iteration.
  observation.content.batch = std::max(0.0, *window.generated - window.prompts) / iterations.count;
  observation.content.context_tokens = window.context_tokens;
  observation.content.prompt_tokens = window.prompt_tokens / iterations.count;
  observation.content.prompts = window.prompts / iterations.count;
  observation.decodes = observation.content.batch > 0;
  return observation;
}

IterationObservation mean_gap(const Growth& window, double batch, double late) {
  const CountedTime& gaps = *window.gaps;
  // A request is stalled by the prompts of others; its own prompt comes before its first gap.
  const double others = (batch - 1) / std::max(gaps.count, window.generated ? *window.generated - window.prompts : 0);
  IterationObservation observation;
  observation.seconds = gaps.sum_s / gaps.count;
  observation.count = gaps.count;
  observation.decodes = true;
  observation.noise_deviation = std::hypot(kGapNoise, late);
  observation.content.batch = batch;
  observation.content.context_tokens = window.context_tokens;
  observation.content.prompt_tokens = window.prompt_tokens * others;
  observation.content.prompts = window.prompts * others;
  return observation;
}

// The first token comes at the end of the request's own iteration, together with decoding requests, and after the end of the
// current iteration.
std::optional<IterationObservation> mean_first_token(const Growth& window, double batch, double late, bool waited) {
  if (!(window.prompts > 0)) return std::nullopt;
  const auto of = [&](double seconds, double iterations, double noise) -> std::optional<IterationObservation> {
    if (!(seconds > 0)) return std::nullopt;
    IterationObservation observation;
    observation.seconds = seconds;
    observation.count = window.prompts;
    observation.noise_deviation = std::hypot(waited ? kCrowdedNoise : noise, late);
    observation.content.iterations = iterations;
    observation.content.batch = (batch - 1) * iterations;
    observation.content.context_tokens = window.context_tokens;
    observation.content.prompt_tokens = window.prompt_tokens / window.prompts;
    observation.content.prompts = 1;
    return observation;
  };
  const std::optional<CountedTime>&first_tokens = window.first_tokens, &prefills = window.prefills, &queueing = window.queueing;
  if (window.prompt_seconds) return of(*window.prompt_seconds / window.prompts, 1, kPrefillNoise);
  if (prefills && prefills->count > 0) return of(prefills->sum_s / prefills->count, 1, kPrefillNoise);
  if (!first_tokens || !(first_tokens->count > 0)) return std::nullopt;
  const double first_token_s = first_tokens->sum_s / first_tokens->count;
  if (queueing && queueing->count > 0) return of(first_token_s - queueing->sum_s / queueing->count, 1, kPrefillNoise);
  if (waited) return std::nullopt;
  return of(first_token_s, batch > 1 ? 1 + kUnderWay : 1, kFirstTokenNoise);
}

}  // namespace

std::vector<IterationObservation> observations_of(const std::vector<MeasuredIteration>& measured, double noise_deviation) {
  std::vector<IterationObservation> out;
  for (const MeasuredIteration& one : measured) {
    IterationObservation observation;
    observation.seconds = one.seconds;
    observation.decodes = one.batch > 0;
    observation.noise_deviation = noise_deviation;
    observation.content.batch = one.batch;
    observation.content.context_tokens = one.context_tokens;
    observation.content.prompt_tokens = one.prompt_tokens;
    observation.content.prompts = one.prompt_tokens > 0 ? 1 : 0;
    out.push_back(observation);
  }
  return out;
}

void IterationWindows::begin(const WorkerCounters& now) {
  first_ = now;
  least_running_ = max_running_ = running_sum_ = running_squares_ = 0;
  readings_ = busy_ = 0;
  waited_ = false;
}

std::vector<IterationObservation> IterationWindows::take(const WorkerCounters& now, double context_tokens,
                                                         double prompt_tokens) {
  if (last_at_s_ && now.at_s <= *last_at_s_) return {};  // already processed
  last_at_s_ = now.at_s;
  if (!first_ || fell(*first_, now)) {
    warm_at_s_ = now.at_s + kColdS;
    begin(now);
    return observations_of(now.measured, kMeasuredNoise);
  }
  ++readings_;
  waited_ = waited_ || !now.waiting || *now.waiting > 0;
  if (now.running && *now.running > 0) {
    least_running_ = busy_ == 0 ? *now.running : std::min(least_running_, *now.running);
    max_running_ = std::max(max_running_, *now.running);
    running_sum_ += *now.running;
    running_squares_ += *now.running * *now.running;
    ++busy_;
  }
  const double seconds = now.at_s - first_->at_s;
  if (seconds < (now.gaps_at_end && !now.iterations ? kWindowAtEndS : kWindowS) || readings_ < kLeastReadings) return {};
  std::vector<IterationObservation> out;
  if (first_->at_s >= warm_at_s_) out = close(now, context_tokens, prompt_tokens);
  begin(now);
  return out;
}

std::vector<IterationObservation> IterationWindows::close(const WorkerCounters& now, double context_tokens,
                                                          double prompt_tokens) const {
  const WorkerCounters& before = *first_;
  const Growth window = growth(before, now, context_tokens, prompt_tokens);
  if (window.iterations && window.iterations->count >= kFewestIterations && window.generated) return {mean_iteration(window)};

  if (now.iterations_only) return {};

  // The mean batch weighted by tokens: a batch of eight counts eight times as much as a batch of one.
  double batch = 0;
  if (busy_ >= 2) {
    batch = running_squares_ / running_sum_;
  } else if (window.any_gap() && window.gaps->sum_s / (now.at_s - before.at_s) <= kIdleBatch) {
    batch = 1;  // Little's law: the load is too low for two requests to overlap
  }
  if (!(batch >= 1)) return {};

  const double spread = running_sum_ > 0 ? (max_running_ - least_running_) * busy_ / running_sum_ : 0;
  const double late = now.gaps_at_end ? kSpreadNoise * spread : 0;
  std::vector<IterationObservation> out;
  if (window.any_gap()) out.push_back(mean_gap(window, batch, late));
  if (const auto first_token = mean_first_token(window, batch, late, waited_)) out.push_back(*first_token);
  return out;
}

}  // namespace windlass::planner
