// Finds the worker at which a new request evens out the errors; see rebalance.h.
#include "planner/dispatch/rebalance.h"

#include <cmath>

namespace windlass::dispatch {
namespace {

constexpr double kLeastGain = 1e-9;  // relative to the errors: rounding must move nothing

}  // namespace

std::size_t rebalanced(const BestFit& workers, std::size_t placed, int input_tokens, int predicted_tokens, double now_s) {
  const PackedWorker& from = workers.worker(placed);
  const double error_s = from.error_s();
  if (!(error_s > 0)) return placed;
  const double relieved_s = error_s - std::abs(error_s - from.time_s(predicted_tokens, 1));
  std::size_t best = placed;
  double most_s = kLeastGain * error_s;
  for (std::size_t w = 0; w < workers.workers(); ++w) {
    const PackedWorker& to = workers.worker(w);
    const double its_error_s = to.error_s();
    if (!(its_error_s < 0) || !workers.is_open(w)) continue;
    const double gain_s = relieved_s - its_error_s - std::abs(its_error_s + to.time_s(predicted_tokens, 1));
    if (gain_s <= most_s || !to.fits(input_tokens, predicted_tokens, now_s)) continue;
    best = w;
    most_s = gain_s;
  }
  return best;
}

}  // namespace windlass::dispatch
