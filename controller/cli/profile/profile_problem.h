// Decides whether a fitted profile is accurate enough. If not, explains in words which phase has which error, why, and what
// would help. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/profile/profile_cells.h"
#include "planner/perf/performance_profile.h"

namespace windlass::cli {

inline constexpr double kUsualMaxError = 0.2;           // default of --max-error
inline constexpr const char* kPrefillPart = "prefill";  // of FitError::part; the other one is "decode"

// The larger median error of the two phases; infinite for a fit without validation (no parts).
[[nodiscard]] double worst_error(const planner::PerformanceProfile& profile);

// The typical deviation of a run from its load point's median, as a share; nullopt if every load point was run once.
[[nodiscard]] std::optional<double> usual_spread(const std::vector<ProfileCell>& cells, bool of_prefill);

// How the measurements ended.
struct ProfileEnd {
  double max_error = kUsualMaxError;  // limit of worst_error()
  bool out_of_time = false;
  std::size_t runs = 0;
};

// "decode: median error on held-out load points must be at most 20.0% (got 92.0%; --max-error)", for each phase above the
// limit; empty if there is none.
[[nodiscard]] std::string phases_beyond(const planner::PerformanceProfile& profile, double max_error);

// The same with the cause and a remedy, derived from the spread of the runs of each load point.
[[nodiscard]] std::string problem_of(const planner::PerformanceProfile& profile, const std::vector<ProfileCell>& cells,
                                     const ProfileEnd& end);

}  // namespace windlass::cli
