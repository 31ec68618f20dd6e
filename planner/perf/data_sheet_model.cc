// Builds an iteration model from data sheets; see data_sheet_model.h.
#include "planner/perf/data_sheet_model.h"

namespace windlass::planner {

LinearIterationModel data_sheet_model(const LinearCoefficients& coefficients, double kv_capacity_tokens) {
  const LinearPhase prefill{{coefficients.k1, 0, 0, coefficients.c1}, {}};
  const LinearPhase decode{{coefficients.k2, coefficients.c2, 0, coefficients.c3}, {}};
  return {prefill, decode, kv_capacity_tokens};
}

}  // namespace windlass::planner
