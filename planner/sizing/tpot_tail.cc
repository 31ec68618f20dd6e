// Finds the rate at which a percentile meets the TPOT objective; see tpot_tail.h.
#include "planner/sizing/tpot_tail.h"

#include <algorithm>
#include <cmath>

namespace windlass::planner {
namespace {

constexpr int kTailBisections = 40;
constexpr double kMaxPrefillShare = 0.95;
// Terms of the Poisson sum; beyond that the Wilson-Hilferty approximation is off by less than 1e-5.
constexpr double kMaxTerms = 500;
constexpr double kLeastTermShare = 1e-18;  // of the largest term

// The steady state of a worker at `rate_per_s`: requests in it and their iterations.
struct Steady {
  double batch = 0;
  double decode_s = 0;
  double iteration_s = 0;  // mean, including prompts
};

Steady steady_state(const LatencyModel& model, const Lengths& lengths, double prompt_s, double rate_per_s) {
  const double context = lengths.input_tokens + kContextGrowth * lengths.output_tokens;
  const double share = rate_per_s * prompt_s;
  Steady at;
  at.decode_s = model.decode_s(1, context);
  // decode_s is linear in the batch or steeper, so the batch grows from below to its fixed point, or without bound.
  for (int i = 0; i < 200; ++i) {
    at.iteration_s = at.decode_s / (1 - std::min(kMaxPrefillShare, share));
    const double batch = rate_per_s * lengths.output_tokens * at.iteration_s;
    if (std::abs(batch - at.batch) < 1e-6 * batch || batch > kMaxBatch) {
      at.batch = batch;
      break;
    }
    at.batch = batch;
    at.decode_s = model.decode_s(std::max(1.0, batch), context);
  }
  return at;
}

}  // namespace

double poisson_above(double mean, double k) {
  if (k < 0) return 1;
  if (!(mean > 0)) return 0;
  const double most = std::floor(k);
  if (most > kMaxTerms) {
    // Poisson(mean) > k if a Gamma(k + 1) variable is below the mean; its cube root is approximately normal.
    const double shape = most + 1;
    const double deviations = 3 * std::sqrt(shape) * (std::cbrt(mean / shape) - 1 + 1 / (9 * shape));
    return 0.5 * std::erfc(-deviations / std::sqrt(2.0));
  }
  // Sum from the largest term of 0 ... most outwards, each term from its neighbour, until terms are negligible.
  const double top = std::min(most, std::floor(mean));
  const double largest = std::exp(top * std::log(mean) - mean - std::lgamma(top + 1));
  const double least = largest * kLeastTermShare;
  double sum = largest;
  double term = largest;
  for (double i = top; i >= 1 && term > least; --i) sum += term *= i / mean;
  term = largest;
  for (double i = top + 1; i <= most && term > least; ++i) sum += term *= mean / i;
  return std::max(0.0, 1 - sum);
}

double rate_within_tpot(const LatencyModel& model, const Objective& objective, const Lengths& lengths, int slots) {
  const double steps = lengths.output_tokens - 1;
  const double prompt_s = std::max(1e-9, model.prefill_s(lengths.input_tokens) - model.prefill_s(0));
  const auto inside = [&](double rate_per_s) {
    if (rate_per_s * prompt_s > kMaxPrefillShare) return false;
    const Steady at = steady_state(model, lengths, prompt_s, rate_per_s);
    if (at.batch > slots) return false;
    if (steps <= 0) return true;
    if (slots <= 1) return at.decode_s <= objective.tpot_s;  // no other prompt can interfere
    const double room = steps * (objective.tpot_s - at.decode_s) / prompt_s;
    return poisson_above(rate_per_s * steps * objective.tpot_s, room) <= 1 - objective.percentile / 100;
  };
  // No batch decodes faster than a single request, so the slots cannot hold more.
  const double alone_s =
      lengths.output_tokens * model.decode_s(1, lengths.input_tokens + kContextGrowth * lengths.output_tokens);
  const double max_per_s = std::min(kMaxPrefillShare / prompt_s, slots / std::max(1e-9, alone_s));
  double low = 0;
  double high = max_per_s;
  if (inside(high)) return high;
  for (int i = 0; i < kTailBisections; ++i) {
    const double middle = (low + high) / 2;
    (inside(middle) ? low : high) = middle;
  }
  return low > 1e-6 * max_per_s ? low : 0;
}

}  // namespace windlass::planner
