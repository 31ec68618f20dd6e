// Bucket bounds of our histograms, in seconds. They are vLLM's (vllm/v1/metrics/loggers.py), so that dashboards and habits
// carry over.
#pragma once

#include <vector>

namespace windlass::metrics {

[[nodiscard]] std::vector<double> time_to_first_token_bounds_s();
[[nodiscard]] std::vector<double> time_per_output_token_bounds_s();
[[nodiscard]] std::vector<double> iteration_bounds_s();
[[nodiscard]] std::vector<double> iteration_tokens_bounds();   // powers of two
[[nodiscard]] std::vector<double> request_latency_bounds_s();  // also for waits in a queue
[[nodiscard]] std::vector<double> reconcile_bounds_s();        // the controller's steps: 1 ms to 60 s

}  // namespace windlass::metrics
