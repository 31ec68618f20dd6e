// Fits latency models to Splitwise's CSV rows, as lines or a table of medians, with cross-validated errors, and returns a
// PerformanceProfile.
//
// The errors are cross-validated: each sample is predicted by a fit that has not seen it. `unseen` holds out all runs of one
// prompt size and batch size at a time, which measures interpolation between measured shapes. Pure; deterministic by seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/performance_profile.h"
#include "planner/perf/profile_table.h"

namespace windlass::planner {

struct ValidationOptions {
  int folds = 5;
  std::uint64_t seed = 0;  // seed of the folds
};

// Prefill and decode samples from the rows of the key that are a single batch.
[[nodiscard]] std::vector<IterationSample> samples_of(std::span<const ProfileRow> rows, const ProfileKey& key);

// Errors kNotFound: no usable row has the key. kInvalidArgument: too few rows to fit or to validate.
[[nodiscard]] Result<PerformanceProfile> fit_lines(std::span<const ProfileRow> rows, const ProfileKey& key, LinearForm form,
                                                   const ValidationOptions& options = {});
[[nodiscard]] Result<PerformanceProfile> fit_cells(std::span<const ProfileRow> rows, const ProfileKey& key,
                                                   ProfileReading reading, const ValidationOptions& options = {});

}  // namespace windlass::planner
