// Profiles at degrees of tensor parallelism that were not measured: between two that were, linear in 1 / degree.
//
// An iteration's time falls about as a + b / degree. On Splitwise's Llama 2 70B, degree 4 from 2 and 8, this errs by 9.1 % in
// prompt and 10.8 % in token time; linear in the degree itself by 23.7 % and 19.4 %. Beyond the measured degrees nothing is
// said.
#pragma once

#include <memory>
#include <span>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/profile_table.h"

namespace windlass::planner {

// The profile's table where the key was measured, else what lies between its neighbours, all of which counts as extrapolated.
// Error kNotFound: no row of the model and hardware has the degree, or one below and one above it; it lists what there is.
[[nodiscard]] Result<std::shared_ptr<const IterationModel>> profile_model(std::span<const ProfileRow> rows,
                                                                          const ProfileKey& key, ProfileReading reading,
                                                                          double kv_capacity_tokens);

}  // namespace windlass::planner
