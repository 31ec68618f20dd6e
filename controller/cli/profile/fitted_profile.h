// Fits a PerformanceProfile to measured rows, writes it to a file and prints a table of its errors. Shared by `windlass fit`
// and `windlass profile`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/console/console.h"
#include "planner/perf/performance_profile.h"
#include "planner/perf/profile_fit.h"

namespace windlass::cli {

// Which fit to compute: the values of --model or --fit, --form and --reading. `model` is "linear" (lines), "profile" (medians)
// or "best": lines if they meet max_error, otherwise whichever has the smaller error.
struct RowFit {
  std::string model = "linear";
  std::string form = "best";
  std::string reading = "batchShape";
  planner::ValidationOptions validation = {};
  double max_error = 0.2;  // best: highest median error of each phase
};

[[nodiscard]] Result<planner::PerformanceProfile> fit_rows(const std::vector<planner::ProfileRow>& rows,
                                                           const planner::ProfileKey& key, const RowFit& fit);

struct Fitted {
  planner::PerformanceProfile profile;
  std::vector<std::string> notes;
  std::vector<planner::ProfileRow> rows = {};  // the fitted rows, if they can be plotted
};

// A summary of the fit, its notes and a table of its errors.
[[nodiscard]] std::string error_text(const Fitted& fitted);

// Where the profile is written.
struct ProfileOutput {
  std::string source;  // of the measurements; stored in the profile
  std::string name;    // of the PerformanceProfile; empty: MODEL-ACCELERATOR-Ngpu
  std::optional<std::int64_t> kv_capacity_tokens;
  std::string file = "-";  // "-": profile to stdout, error table to stderr
};

// Errors: the profile would not be valid, or the file cannot be written.
[[nodiscard]] Result<void> write_profile(Fitted fitted, const ProfileOutput& output, Console& console);

// Prints that a command writes no profile, and why. `could`: whether --output-anyway would write it.
void tell_refused(const std::string& command, const std::string& problem, const std::vector<std::string>& notes, bool could,
                  Console& console);

}  // namespace windlass::cli
