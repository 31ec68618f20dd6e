// What `windlass profile` measured, load point by load point: the runs of each, and the row that stands for them in a fit.
//
// A run's time is that of the worker and of whatever else the machine did meanwhile. Medians of a point's runs, without
// outliers, are what the fit is made of and judged on, so that more runs make it better. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/perf/profile_table.h"
#include "planner/perf/robust_median.h"

namespace windlass::cli {

struct ProfileCell {
  int prompt = 0;  // words
  int batch = 0;   // requests at once
  int max_tokens = 0;
  std::vector<planner::ProfileRow> runs;  // at least one

  [[nodiscard]] planner::RobustMedian prompt_s() const;
  [[nodiscard]] planner::RobustMedian token_s() const;
  [[nodiscard]] planner::ProfileRow row() const;
  [[nodiscard]] std::int64_t outliers() const;  // runs that are one in either time
};

[[nodiscard]] std::vector<planner::ProfileRow> rows_of(const std::vector<ProfileCell>& cells);      // one for each
[[nodiscard]] std::vector<planner::ProfileRow> all_runs_of(const std::vector<ProfileCell>& cells);  // as they were measured

}  // namespace windlass::cli
