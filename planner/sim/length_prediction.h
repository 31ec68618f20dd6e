// What is known of a request's output length before it is made, where lengths are predicted.
#pragma once

#include "planner/base/rng.h"
#include "planner/dispatch/dispatch_settings.h"

namespace windlass::sim {

struct PredictedLength {
  int at_least = 1;  // lower end of the bucket, which is what decode admission reserves for, as in the paper; no less than 1
  int middle = 0;    // of the bucket: tells heavy decodes from light ones
};

// REQUIRES: bucket_tokens >= 1.
[[nodiscard]] PredictedLength predict_length(const dispatch::LengthPrediction& prediction, int output_tokens, Rng& rng);

}  // namespace windlass::sim
