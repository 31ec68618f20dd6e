// Interpolates profiles for degrees of tensor parallelism that were not measured, linearly in 1 / degree between two measured
// ones.
//
// An iteration's time falls roughly as a + b / degree. On Splitwise's Llama 2 70B, predicting degree 4 from 2 and 8 has an
// error of 9.1 % in prompt time and 10.8 % in token time; linear in the degree itself, 23.7 % and 19.4 %. There is no
// extrapolation beyond the measured degrees.
#pragma once

#include <memory>
#include <span>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/profile_table.h"

namespace windlass::planner {

// The profile's table if the key was measured, otherwise an interpolation between its neighbours that counts as extrapolated.
// Error kNotFound: no row of the model and hardware has the degree, or one below and one above; it lists the existing ones.
[[nodiscard]] Result<std::shared_ptr<const IterationModel>> profile_model(std::span<const ProfileRow> rows,
                                                                          const ProfileKey& key, ProfileReading reading,
                                                                          double kv_capacity_tokens);

}  // namespace windlass::planner
