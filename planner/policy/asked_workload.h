// The workload that strategies are asked about: the spec's assumption until enough has been observed, then the highest rate of
// about the last hour and the observed lengths. Both move in steps, so that small changes ask nothing new.
#pragma once

#include "planner/policy/demand_view.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// Updates memory.busiest and memory.asked.
void follow_workload(PolicyMemory& memory, const Service& service, const DemandView& view, double now_s);

// The workload to ask about now.
[[nodiscard]] AssumedWorkload workload_to_ask(const Service& service);

}  // namespace windlass::planner
