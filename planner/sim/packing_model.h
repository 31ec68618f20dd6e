// packing_model() fits Aladdin's (Eq. 1 to 3) or Huawei's (Eq. 3, 4) linear model of a worker to the times of its latency
// model. Placement uses it (planner/dispatch/packed_worker.h, batch_times.h). Pure.
#pragma once

#include "planner/dispatch/packed_worker.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/linear_iteration_model.h"

namespace windlass::sim {

struct PackingFit {
  dispatch::PackingModel model;
  double prefill_error = 0;  // mean relative error of the fit on its samples
  double decode_error = 0;
};

// Samples: prompts of 64 to 4,096 tokens, alone, for Huawei's form also 2, 4 and 8 at a time; and batches of 1 to
// `max_requests` with contexts of 64 to 4,096 tokens that the cache holds. REQUIRES: max_requests >= 1.
[[nodiscard]] PackingFit packing_model(const planner::IterationModel& model, double kv_capacity_tokens, int block_tokens,
                                       int max_requests, planner::LinearForm form = planner::LinearForm::kAladdin);

}  // namespace windlass::sim
