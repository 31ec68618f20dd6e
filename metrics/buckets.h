// Bucket bounds of our histograms, in seconds. The worker uses vLLM's (vllm/v1/metrics/loggers.py), so that dashboards work for
// both. The gateway uses 1, 2 and 5 times the powers of ten, from 100 us on. These are coarse because the gateway also counts
// in fine bins (latency_bins.h).
#pragma once

#include <vector>

namespace windlass::metrics {

[[nodiscard]] std::vector<double> time_to_first_token_bounds_s();
[[nodiscard]] std::vector<double> time_per_output_token_bounds_s();
[[nodiscard]] std::vector<double> gateway_wait_bounds_s();   // TTFT and queueing: 100 us to 500 s
[[nodiscard]] std::vector<double> gateway_token_bounds_s();  // TPOT: 100 us to 10 s
[[nodiscard]] std::vector<double> iteration_bounds_s();
[[nodiscard]] std::vector<double> iteration_tokens_bounds();   // powers of two
[[nodiscard]] std::vector<double> request_latency_bounds_s();  // also for time in a worker's queue
[[nodiscard]] std::vector<double> reconcile_bounds_s();        // the controller's steps: 1 ms to 60 s

}  // namespace windlass::metrics
