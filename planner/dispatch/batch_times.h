// BatchTimes computes how long an instance takes for a whole batch, and how much of that one request adds: Xiong et al. 2025
// ("High-Throughput LLM inference on Heterogeneous Clusters", Huawei), Eq. 3 to 6.
//
//   prefill   p1 b I + p2 b + p3 I + p4                                         Eq. 3, b sequences, longest prompt I
//   decode    sum over k = 1 .. O of p5 b (I + k) + p6 b + p7 (I + k) + p8      Eq. 4, longest answer O
//   workload  time of a batch of equal requests that fills the cache / number of requests      Eq. 5, 6
//
// Plain value; pure.
#pragma once

#include "planner/dispatch/packed_worker.h"

namespace windlass::dispatch {

// Seconds.
struct BatchTimes {
  double prefill_token_s = 0;    // p1: per sequence and token of the longest prompt
  double prefill_request_s = 0;  // p2: per sequence
  double prefill_length_s = 0;   // p3: per token of the longest prompt
  double prefill_s = 0;          // p4
  double context_token_s = 0;    // p5: per sequence and token of the longest context, per iteration
  double decode_request_s = 0;   // p6: per sequence and iteration
  double context_length_s = 0;   // p7: per token of the longest context, per iteration
  double decode_s = 0;           // p8: per iteration

  bool operator==(const BatchTimes&) const = default;

  // Eq. 3. REQUIRES: batch > 0, input_tokens > 0.
  [[nodiscard]] double prefill_time_s(double batch, double input_tokens) const {
    return (prefill_token_s * batch + prefill_length_s) * input_tokens + prefill_request_s * batch + prefill_s;
  }
  // Eq. 4 in closed form: the contexts of the O iterations are I + 1 .. I + O.
  [[nodiscard]] double decode_time_s(double batch, double input_tokens, double output_tokens) const {
    const double contexts = output_tokens * input_tokens + output_tokens * (output_tokens + 1) / 2;
    return (context_token_s * batch + context_length_s) * contexts + (decode_request_s * batch + decode_s) * output_tokens;
  }
  // False if all are 0: nothing is known about the instance.
  [[nodiscard]] bool known() const { return *this != BatchTimes{}; }
};

// The coefficients of a packing model: Aladdin's line is Huawei's without p2, p3 and p7.
[[nodiscard]] BatchTimes batch_times(const PackingModel& model);

// T of a request in seconds (Eq. 5 and 6). The batch is the number of such requests that fit in a cache of `kv_tokens` (0: no
// limit). It is at least 1, at most `max_requests` (a limit that the paper omits), and need not be whole. `phase`: the part of
// the request that is served here. REQUIRES: tokens >= 1, max_requests >= 1.
[[nodiscard]] double request_workload_s(const BatchTimes& times, double kv_tokens, double max_requests, double input_tokens,
                                        double output_tokens, PackingPhase phase = PackingPhase::kBoth);

}  // namespace windlass::dispatch
