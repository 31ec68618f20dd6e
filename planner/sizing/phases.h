// Sizes workers that serve one phase: only prompts, or only answers. Closed forms over mean lengths. Pure.
#pragma once

#include "planner/perf/latency_model.h"
#include "planner/sizing/worker_config.h"

namespace windlass::planner {

struct PhaseFit {
  int slots = 0;  // concurrent requests; 0: not even one fits
  WorkerTimes times;
};

// A prefill worker batches prompts up to L_m tokens; a longer batch hardly increases tokens per second (DistServe, Section 3.1;
// here 85 % of the maximum). It may hold two batches: one is computed while the keys and values of the other are transferred.
// times.service_s: of one slot if all are taken; the worker serves slots / service_s requests per second. `most`: limit of
// slots.
[[nodiscard]] PhaseFit fit_prefill(const LatencyModel& model, const Lengths& lengths, int most);

// A decode worker runs the largest batch whose iterations keep timePerOutputToken (Eq. 4 of worker_config.h, without stalls by
// prefills) within its memory (Eq. 1). times.ttft_s: its own part, one iteration.
[[nodiscard]] PhaseFit fit_decode(const LatencyModel& model, const Objective& objective, const Lengths& lengths, int most);

}  // namespace windlass::planner
