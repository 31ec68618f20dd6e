// The workload that strategies are asked about: the spec's assumption until enough has been observed, then the highest rate of
// about the last hour and the observed lengths. This is the profiler of DistServe (Zhong et al., OSDI 2024, Section 4.3,
// "Replaning"): "if a significant pattern shift is detected", the search runs again on recent data.
//
// A shift is significant if it exceeds a step, so that small changes ask nothing new, and what may be noise: kShiftErrors
// standard errors of the mean lengths (their deviation is assumed to be as large as the mean), kRiseSigmas of the rate.
#pragma once

#include <string>

#include "planner/policy/demand_view.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// Updates memory.busiest, memory.asked and memory.shift.
void follow_workload(PolicyMemory& memory, const Service& service, const DemandView& view, double now_s);

// The workload to ask about now.
[[nodiscard]] AssumedWorkload workload_to_ask(const Service& service);

// "prompts went from 28 to 210 tokens, the rate went from 1 to 2.3 requests/s".
[[nodiscard]] std::string text_of(const WorkloadShift& shift);

}  // namespace windlass::planner
