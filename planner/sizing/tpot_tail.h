// Computes how many requests per second one worker can take so that a given percentile of them, and not only the mean, meets
// the TPOT objective.
//
// While a request decodes, every prompt that the worker admits stalls it. During the (n - 1) TPOT seconds that an answer may
// take, Poisson(rate (n - 1) TPOT) prompts arrive. The objective leaves room for k = (n - 1) (TPOT - t_d) / t_p of them. t_d is
// a decode iteration at the batch for this rate (Little's law). t_p is what a prompt adds to an iteration: its prefill minus
// the constant, which the iteration pays anyway. The result is the largest rate with P[more than k] <= 1 - percentile. Long
// answers average the stalls out, and the mean decides; short answers (code, classification) feel each stall.
//
// Compared with the serving simulator (vllm-v1 batching, many workers, 99 %), relative to the rate of the full batch: for
// Azure's conversations the result is 1.03, and 1.02 meets the objective in the simulator. For Azure's code the result is 0.53,
// and 0.52 meets it.
#pragma once

#include "planner/perf/latency_model.h"
#include "planner/sizing/worker_config.h"

namespace windlass::planner {

// Requests per second; at most what `slots` concurrent requests allow. 0 if not even a single request meets the objective. TPOT
// is no limit if answers have a single token.
[[nodiscard]] double rate_within_tpot(const LatencyModel& model, const Objective& objective, const Lengths& lengths, int slots);

// P[Poisson(mean) > k]: a sum of at most 500 terms; beyond that the Wilson-Hilferty approximation. The work is bounded for all
// arguments.
[[nodiscard]] double poisson_above(double mean, double k);

}  // namespace windlass::planner
