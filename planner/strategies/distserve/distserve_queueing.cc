// See distserve_queueing.h.
#include "planner/strategies/distserve/distserve_queueing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace windlass::search {
namespace {

constexpr double kNeverServed = std::numeric_limits<double>::infinity();
constexpr std::size_t kQuantiles = 32;  // number of prompt quantiles
constexpr int kTokensStep = 16;
constexpr int kQueueBisections = 50;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double prefill_s(const planner::IterationModel& model, double tokens) {
  return model.iteration_s(planner::prefill_batch(1, tokens));
}

}  // namespace

double md1_mean_ttft_s(double requests_per_s, double execution_s, double stage_s) {
  const double utilisation = requests_per_s * stage_s;
  if (utilisation >= 1) return kNeverServed;
  return execution_s + requests_per_s * stage_s * stage_s / (2 * (1 - utilisation));
}

WaitTail::WaitTail(double requests_per_s, const std::vector<double>& stage_s) {
  utilisation_ = requests_per_s * mean(stage_s);
  if (utilisation_ >= 1 || utilisation_ <= 0) return;
  // The decay is the positive root of R (E e^(x S) - 1) = x; the left side is convex and below x up to the root.
  const double count = static_cast<double>(stage_s.size());
  const auto above = [&](double x) {
    double sum = 0;
    for (const double s : stage_s) sum += std::expm1(x * s);
    return requests_per_s * sum / count - x;
  };
  double low = 0, high = 1 / *std::max_element(stage_s.begin(), stage_s.end());
  while (above(high) <= 0) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < kQueueBisections && high - low > 1e-9 * high; ++i) {
    const double middle = (low + high) / 2;
    (above(middle) > 0 ? high : low) = middle;
  }
  decay_ = (low + high) / 2;
  double slope = 0;  // of R E e^(x S)
  for (const double s : stage_s) slope += s * std::exp(decay_ * s);
  factor_ = (1 - utilisation_) / (requests_per_s * slope / count - 1);
}

double WaitTail::exceeds(double t_s) const {
  if (!stable()) return 1;
  if (utilisation_ <= 0) return 0;
  return std::min(utilisation_, factor_ * std::exp(-decay_ * t_s));
}

int critical_prompt_tokens(const planner::IterationModel& model, double saturation, int max_tokens) {
  const auto tokens_per_s = [&](int tokens) { return tokens / std::max(prefill_s(model, tokens), 1e-12); };
  double best = 0;
  for (int tokens = kTokensStep; tokens <= max_tokens; tokens += std::max(kTokensStep, tokens / 16 / 16 * 16)) {
    best = std::max(best, tokens_per_s(tokens));
  }
  for (int tokens = kTokensStep; tokens <= max_tokens; tokens += kTokensStep) {
    if (tokens_per_s(tokens) >= saturation * best) return tokens;
  }
  return std::max(kTokensStep, max_tokens);
}

PhaseLengths phase_lengths(std::vector<std::pair<int, int>> lengths) {
  PhaseLengths result;
  if (lengths.empty()) return result;
  double steps = 0, contexts = 0;
  for (const auto& [input, output] : lengths) {
    if (output <= 1) continue;
    steps += output - 1;
    contexts += (output - 1) * (input + output / 2.0);
  }
  result.mean_decode_steps = steps / static_cast<double>(lengths.size());
  if (steps > 0) result.mean_context_tokens = contexts / steps;
  std::sort(lengths.begin(), lengths.end());
  const std::size_t count = std::min(kQuantiles, lengths.size());
  for (std::size_t i = 0; i < count; ++i) {
    // The mean of each part.
    const std::size_t from = i * lengths.size() / count, to = (i + 1) * lengths.size() / count;
    double sum = 0;
    for (std::size_t at = from; at < to; ++at) sum += lengths[at].first;
    result.prompts.push_back(sum / static_cast<double>(to - from));
  }
  return result;
}

PhaseScreen screen_prefill(const planner::IterationModel& model, const PhaseLengths& lengths, int batch_tokens, double ttft_s,
                           double attainment) {
  const double stages = std::max(1, model.pipeline_stages());
  const double full_s = prefill_s(model, batch_tokens);
  std::vector<double> alone_s, stage_s;  // per prompt: time alone, and its share of the slowest stage in a full batch
  for (const double tokens : lengths.prompts) {
    alone_s.push_back(prefill_s(model, tokens));
    stage_s.push_back(std::min(alone_s.back(), tokens < batch_tokens ? full_s * tokens / batch_tokens : kNeverServed) / stages);
  }
  PhaseScreen screen;
  screen.ceiling_per_s = 1 / std::max(mean(stage_s), 1e-12);
  const auto attained = [&](double rate) {
    const WaitTail wait(rate, stage_s);
    double sum = 0;
    for (const double execution_s : alone_s) sum += execution_s > ttft_s ? 0 : 1 - wait.exceeds(ttft_s - execution_s);
    return sum / static_cast<double>(alone_s.size());
  };
  if (attained(screen.ceiling_per_s * 1e-6) < attainment) return screen;  // infeasible even alone
  double low = 0, high = screen.ceiling_per_s;
  constexpr double kNear = 0.01;  // accuracy that suffices for a first guess
  while (high - low > kNear * high) {
    const double middle = (low + high) / 2;
    (attained(middle) >= attainment ? low : high) = middle;
  }
  screen.estimate_per_s = low;
  return screen;
}

PhaseScreen screen_decode(const planner::IterationModel& model, double kv_capacity_tokens, const PhaseLengths& lengths,
                          int max_sequences, double tpot_s) {
  if (lengths.mean_decode_steps <= 0) return {kNeverServed, kNeverServed};
  const double stages = std::max(1, model.pipeline_stages());
  const auto pass_s = [&](int batch) {
    return std::max(1e-12, model.iteration_s(planner::decode_batch(batch, lengths.mean_context_tokens)));
  };
  const double by_cache = kv_capacity_tokens / stages / lengths.mean_context_tokens;
  const auto most = static_cast<int>(std::clamp(std::floor(by_cache), 1.0, static_cast<double>(max_sequences)));
  int fits = 0, too_many = most + 1;
  while (too_many - fits > 1) {
    const int middle = fits + (too_many - fits) / 2;
    (pass_s(middle) <= tpot_s ? fits : too_many) = middle;
  }
  const int batch = std::max(1, fits);
  PhaseScreen screen;
  screen.ceiling_per_s = stages * batch / pass_s(batch) / lengths.mean_decode_steps;
  screen.estimate_per_s = fits == 0 ? 0 : screen.ceiling_per_s;
  return screen;
}

}  // namespace windlass::search
