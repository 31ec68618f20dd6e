// What a worker does that has one phase of every request: prompts alone, or answers alone. Closed forms over mean lengths.
// Pure.
#pragma once

#include "planner/perf/latency_model.h"
#include "planner/sizing/worker_config.h"

namespace windlass::planner {

struct PhaseFit {
  int slots = 0;  // requests that it may hold; 0: not even one fits
  WorkerTimes times;
};

// A prefill worker batches prompts up to L_m tokens, from where a longer batch makes hardly more tokens a second (DistServe,
// Section 3.1; here 85 % of the most). It may hold two batches: one is computed while the other's keys and values are taken.
// times.service_s: of a slot, all being taken; the worker serves slots / service_s requests a second. `most`: slots.
[[nodiscard]] PhaseFit fit_prefill(const LatencyModel& model, const Lengths& lengths, int most);

// A decode worker runs the largest batch whose iterations keep timePerOutputToken (Eq. 4 of worker_config.h without prefills
// that stall them), inside its memory (Eq. 1). times.ttft_s: of its own part, one iteration.
[[nodiscard]] PhaseFit fit_decode(const LatencyModel& model, const Objective& objective, const Lengths& lengths, int most);

}  // namespace windlass::planner
