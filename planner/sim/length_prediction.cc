// See length_prediction.h.
#include "planner/sim/length_prediction.h"

#include <algorithm>

namespace windlass::sim {

PredictedLength predict_length(const dispatch::LengthPrediction& prediction, int output_tokens, Rng& rng) {
  int bucket = output_tokens / prediction.bucket_tokens;
  // The first bucket has only one neighbour.
  if (rng.uniform() >= prediction.accuracy) bucket += bucket == 0 || rng.uniform() < 0.5 ? 1 : -1;
  const int at_least = bucket * prediction.bucket_tokens;
  return {std::max(1, at_least), at_least + prediction.bucket_tokens / 2};
}

}  // namespace windlass::sim
