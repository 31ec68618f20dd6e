// The linear iteration model that follows from data sheets (linear_model.h): what is assumed of a worker that nobody measured.
// Pure.
#pragma once

#include "planner/perf/linear_iteration_model.h"
#include "planner/perf/linear_model.h"

namespace windlass::planner {

// Nothing was measured, so every iteration counts as extrapolated.
[[nodiscard]] LinearIterationModel data_sheet_model(const LinearCoefficients& coefficients, double kv_capacity_tokens);

}  // namespace windlass::planner
