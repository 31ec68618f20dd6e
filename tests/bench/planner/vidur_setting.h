// Vidur's setting of Section 7.3: its models and workloads (tests/bench/fidelity/vidur_ordering.h), on A100 and H100 with
// measured operators, tensor and pipeline parallelism 1, 2 and 4, at most 16 GPUs.
#pragma once

#include <memory>
#include <string>

#include "planner/base/result.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/problem.h"
#include "tests/bench/fidelity/vidur_ordering.h"

namespace windlass::bench {

struct VidurProblem {
  std::unique_ptr<search::DrawnRequests> requests;
  search::Problem problem;  // refers to the members above; TTFT P90 < 2 s, TBT P99 < 200 ms
};

// Fails if data cannot be read. `executor`: for reading the operators and building models, or null.
[[nodiscard]] Result<VidurProblem> vidur_problem(const std::string& data, const VidurModel& model,
                                                 const VidurWorkload& workload, Executor* executor = nullptr);

}  // namespace windlass::bench
