// How many requests a second one worker takes with TPOT inside the objective for a percentile of them, not only in the mean.
//
// While a request decodes, every prompt that the worker takes in stalls it. Over the (n - 1) TPOT seconds that its answer may
// take, Poisson(rate (n - 1) TPOT) prompts come; the objective leaves room for k = (n - 1) (TPOT - t_d) / t_p of them, where
// t_d is a decode iteration at the batch that the rate brings (Little) and t_p what a prompt adds to an iteration: its prefill
// less the constant, which the iteration that it joins pays anyway. The rate is the largest with P[more than k] <= 1 -
// percentile. Long answers average the stalls out and the mean decides; short ones (code, classification) feel each of them.
//
// Against the serving simulator (vllm-v1 batching, many workers, 99 %): Azure's conversations 1.03 of the full batch's rate,
// where 1.02 attain; Azure's code 0.53, where 0.52 attain.
#pragma once

#include "planner/perf/latency_model.h"
#include "planner/sizing/worker_config.h"

namespace windlass::planner {

// Requests per second. At most what `slots` requests at once make possible; 0 where not even a request alone is inside;
// unlimited by TPOT with answers of a single token.
[[nodiscard]] double rate_within_tpot(const LatencyModel& model, const Objective& objective, const Lengths& lengths, int slots);

// P[Poisson(mean) > k]: a sum of at most 500 terms, beyond them the Wilson-Hilferty approximation. The work is bounded whatever
// the arguments.
[[nodiscard]] double poisson_above(double mean, double k);

}  // namespace windlass::planner
