// What is known of a request's output length before it is made: TetriInfer's length predictor (Section 3.3.2), by what it gets
// right: a bucket of lengths, or else one of its neighbours.
#pragma once

#include "planner/base/rng.h"

namespace windlass::sim {

struct LengthPrediction {
  int bucket_tokens = 200;
  double accuracy = 0.749;  // how often the bucket is right
};

struct PredictedLength {
  int at_least = 1;  // lower end of the bucket, which is what decode admission reserves for, as in the paper; no less than 1
  int middle = 0;    // of the bucket: tells heavy decodes from light ones
};

// REQUIRES: bucket_tokens >= 1.
[[nodiscard]] PredictedLength predict_length(const LengthPrediction& prediction, int output_tokens, Rng& rng);

}  // namespace windlass::sim
