// Makes the iteration model of a worker without measurements: the linear model (linear_model.h), computed from data sheets.
// Pure.
#pragma once

#include "planner/perf/linear_iteration_model.h"
#include "planner/perf/linear_model.h"

namespace windlass::planner {

// Nothing was measured, so every iteration counts as extrapolated.
[[nodiscard]] LinearIterationModel data_sheet_model(const LinearCoefficients& coefficients, double kv_capacity_tokens);

}  // namespace windlass::planner
