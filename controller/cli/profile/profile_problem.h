// Whether a fitted profile is of use, and what to say where it is not: which phase, how large its error, why, and what would
// help. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/profile/profile_cells.h"
#include "planner/perf/performance_profile.h"

namespace windlass::cli {

inline constexpr double kUsualMaxError = 0.2;           // --max-error where it is left out
inline constexpr const char* kPrefillPart = "prefill";  // of FitError::part; the other one is "decode"

// The larger median error of the two phases: of a fit that nothing judges (no part), infinite.
[[nodiscard]] double worst_error(const planner::PerformanceProfile& profile);

// How far runs of one load point usually lie from their median, as a share of it; none where every load point was run once.
[[nodiscard]] std::optional<double> usual_spread(const std::vector<ProfileCell>& cells, bool of_prefill);

// How the measuring ended.
struct ProfileEnd {
  double max_error = kUsualMaxError;  // the bound of worst_error()
  bool out_of_time = false;
  std::size_t runs = 0;
};

// "decode: median error 92.0% on load points held out, at most 20.0% allowed (--max-error)", for each phase beyond the bound;
// empty where there is none.
[[nodiscard]] std::string phases_beyond(const planner::PerformanceProfile& profile, double max_error);

// The same with the reason and what would help, told by how far runs of one load point lie apart.
[[nodiscard]] std::string problem_of(const planner::PerformanceProfile& profile, const std::vector<ProfileCell>& cells,
                                     const ProfileEnd& end);

}  // namespace windlass::cli
