// Draws the output length that the simulated length predictor reports for a request: the request's bucket or, if the predictor
// errs, a neighbouring one.
#pragma once

#include "planner/base/rng.h"
#include "planner/dispatch/dispatch_settings.h"

namespace windlass::sim {

struct PredictedLength {
  int at_least = 1;  // lower end of the bucket, for which decode admission reserves, as in the paper; at least 1
  int middle = 0;    // middle of the bucket; separates heavy decodes from light ones
};

// REQUIRES: bucket_tokens >= 1.
[[nodiscard]] PredictedLength predict_length(const dispatch::LengthPrediction& prediction, int output_tokens, Rng& rng);

}  // namespace windlass::sim
