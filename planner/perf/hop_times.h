// HopTimes: what the messages between two servers of a chain take.
#pragma once

#include "planner/catalog/model_shape.h"

namespace windlass::planner {

// A message from one server to the next with the activations of `tokens` tokens, in FP32 as workers send them, and the answer's
// way back. The answer is small, so only its latency counts.
struct HopTimes {
  double latency_s = 0;
  double s_per_token = 0;

  [[nodiscard]] double at(double tokens) const { return latency_s + s_per_token * tokens; }
};

// Infinite if bytes_per_s is 0, which means no link.
[[nodiscard]] HopTimes hop_times(const ModelShape& shape, double bytes_per_s, double latency_s);

}  // namespace windlass::planner
