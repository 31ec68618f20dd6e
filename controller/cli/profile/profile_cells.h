// ProfileCell holds the repeated measurements of one load point (prompt length and batch size) of `windlass profile`, and
// combines them into the one row that the fit uses.
//
// A run's time includes whatever else the machine did meanwhile. So the row has the medians of the runs without outliers, and
// more runs make it more accurate. The fit is computed and judged from these rows. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/perf/profile_table.h"
#include "planner/perf/robust_median.h"

namespace windlass::cli {

struct ProfileCell {
  int prompt = 0;  // words
  int batch = 0;   // concurrent requests
  int max_tokens = 0;
  std::vector<planner::ProfileRow> runs;  // at least one

  [[nodiscard]] planner::RobustMedian prompt_s() const;
  [[nodiscard]] planner::RobustMedian token_s() const;
  [[nodiscard]] planner::ProfileRow row() const;
  [[nodiscard]] std::int64_t outliers() const;  // runs that are outliers in prompt time or token time
};

[[nodiscard]] std::vector<planner::ProfileRow> rows_of(const std::vector<ProfileCell>& cells);      // one per cell
[[nodiscard]] std::vector<planner::ProfileRow> all_runs_of(const std::vector<ProfileCell>& cells);  // as measured

}  // namespace windlass::cli
