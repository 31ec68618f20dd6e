// See iteration_windows.h.
#include "planner/perf/iteration_windows.h"

#include <algorithm>
#include <cmath>

namespace windlass::planner {
namespace {

constexpr double kUnderWay = 0.5;         // of an iteration, that a request waits for when it comes
constexpr double kFirstTokenNoise = 0.3;  // requests that come at once stand in front of each other
constexpr double kPrefillNoise = 0.15;
constexpr double kCrowdedNoise = 0.5;  // and share iterations, where others waited before them
constexpr double kGapNoise = 0.05;
constexpr double kMeasuredNoise = 0.03;
constexpr double kSpreadNoise = 0.5;  // of the batch's spread, where times are of earlier iterations
constexpr double kIdleBatch = 0.3;    // requests in the mean: below it they run alone
constexpr double kFewestIterations = 5;

// What came since; nullopt after a restart, or where a reading lacks it.
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
  least_running_ = most_running_ = running_sum_ = running_squares_ = 0;
  readings_ = busy_ = 0;
  waited_ = false;
}

std::vector<IterationObservation> IterationWindows::take(const WorkerCounters& now, double context_tokens,
                                                         double prompt_tokens) {
  if (last_at_s_ && now.at_s <= *last_at_s_) return {};  // seen already
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
    most_running_ = std::max(most_running_, *now.running);
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
  std::vector<IterationObservation> out;
  const WorkerCounters& before = *first_;
  const auto first_tokens = grown(before.first_tokens, now.first_tokens);
  const auto prefills = grown(before.prefills, now.prefills);
  const auto prompted = grown(before.prompt_tokens, now.prompt_tokens);
  const auto generated = grown(before.generated_tokens, now.generated_tokens);
  const auto prompt_seconds = grown(before.prompt_seconds, now.prompt_seconds);
  double prompts = first_tokens ? first_tokens->count : prefills ? prefills->count : 0;
  if (!first_tokens && !prefills && prompted && prompt_tokens > 0) prompts = *prompted / prompt_tokens;
  const double of_prompts = prompts > 0 && prompted && *prompted > 0 ? *prompted : prompts * prompt_tokens;

  if (const auto iterations = grown(before.iterations, now.iterations);
      iterations && iterations->count >= kFewestIterations && generated) {
    IterationObservation observation;
    observation.seconds = iterations->sum_s / iterations->count;
    observation.count = iterations->count;
    observation.decodes = true;
    // A prompt's first token comes with its own iteration.
    observation.content.batch = std::max(0.0, *generated - prompts) / iterations->count;
    observation.content.context_tokens = context_tokens;
    observation.content.prompt_tokens = of_prompts / iterations->count;
    observation.content.prompts = prompts / iterations->count;
    out.push_back(observation);
    return out;
  }

  // The batch as a token sees it: of a batch of eight there are eight times as many as of one.
  const auto gaps = grown(before.token_gaps, now.token_gaps);
  const bool any_gap = gaps && gaps->count > 0 && gaps->sum_s > 0;
  double batch = 0;
  if (busy_ >= 2) {
    batch = running_squares_ / running_sum_;
  } else if (any_gap && gaps->sum_s / (now.at_s - before.at_s) <= kIdleBatch) {
    batch = 1;  // Little's law: too little work for two requests to meet
  }
  if (!(batch >= 1)) return out;

  const double spread = running_sum_ > 0 ? (most_running_ - least_running_) * busy_ / running_sum_ : 0;
  const double late = now.gaps_at_end ? kSpreadNoise * spread : 0;
  if (any_gap) {
    // Others' prompts stall a request; its own comes before its first gap.
    const double others = (batch - 1) / std::max(gaps->count, generated ? *generated - prompts : 0);
    IterationObservation observation;
    observation.seconds = gaps->sum_s / gaps->count;
    observation.count = gaps->count;
    observation.decodes = true;
    observation.noise_deviation = std::hypot(kGapNoise, late);
    observation.content.batch = batch;
    observation.content.context_tokens = context_tokens;
    observation.content.prompt_tokens = of_prompts * others;
    observation.content.prompts = prompts * others;
    out.push_back(observation);
  }
  // A first token comes at the end of its own iteration, beside those that decode; before it the one under way has to end.
  const auto teach_first_token = [&](double seconds, double iterations, double noise) {
    IterationObservation observation;
    observation.seconds = seconds;
    observation.count = prompts;
    observation.noise_deviation = std::hypot(waited_ ? kCrowdedNoise : noise, late);
    observation.content.iterations = iterations;
    observation.content.batch = (batch - 1) * iterations;
    observation.content.context_tokens = context_tokens;
    observation.content.prompt_tokens = of_prompts / prompts;
    observation.content.prompts = 1;
    return observation;
  };
  const auto queueing = grown(before.queueing, now.queueing);
  std::optional<IterationObservation> first_token;
  if (!(prompts > 0)) return out;
  if (prompt_seconds) {
    first_token = teach_first_token(*prompt_seconds / prompts, 1, kPrefillNoise);
  } else if (prefills && prefills->count > 0) {
    first_token = teach_first_token(prefills->sum_s / prefills->count, 1, kPrefillNoise);
  } else if (first_tokens && first_tokens->count > 0 && queueing && queueing->count > 0) {
    first_token =
        teach_first_token(first_tokens->sum_s / first_tokens->count - queueing->sum_s / queueing->count, 1, kPrefillNoise);
  } else if (first_tokens && first_tokens->count > 0 && !waited_) {
    first_token = teach_first_token(first_tokens->sum_s / first_tokens->count, batch > 1 ? 1 + kUnderWay : 1, kFirstTokenNoise);
  }
  if (first_token && first_token->seconds > 0) out.push_back(*first_token);
  return out;
}

}  // namespace windlass::planner
