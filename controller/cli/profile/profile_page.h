// The page of `windlass profile --html` and `windlass fit --html`: charts of measured and fitted times of prefill and decode,
// with the table of errors. Pure.
#pragma once

#include <string>
#include <vector>

#include "controller/cli/profile/profile_cells.h"
#include "planner/perf/performance_profile.h"

namespace windlass::cli {

// The median of one load point, with the range of its runs.
struct MeasuredPoint {
  planner::ProfileRow row;
  double prompt_low_s = 0, prompt_high_s = 0;
  double token_low_s = 0, token_high_s = 0;
};

[[nodiscard]] std::vector<MeasuredPoint> points_of(const std::vector<ProfileCell>& cells);
[[nodiscard]] std::vector<MeasuredPoint> points_of(const std::vector<planner::ProfileRow>& rows);  // one run per row

// `text` is printed below the charts. Error: the fit is neither linear nor a profile.
[[nodiscard]] Result<std::string> profile_page(const planner::PerformanceProfile& profile,
                                               const std::vector<MeasuredPoint>& points, const std::string& text);

}  // namespace windlass::cli
