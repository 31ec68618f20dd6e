// From measured rows to a PerformanceProfile in a file, with its errors as a table: what `windlass fit` and `windlass profile`
// share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/console/console.h"
#include "planner/perf/performance_profile.h"
#include "planner/perf/profile_fit.h"

namespace windlass::cli {

// Which fit: the values of --model or --fit (here linear, profile, or best: lines, and medians where only these keep the
// bound),
// --form and --reading.
struct RowFit {
  std::string model = "linear";
  std::string form = "best";
  std::string reading = "batchShape";
  planner::ValidationOptions validation = {};
  double max_error = 0.2;  // best: the bound of the median error of each phase
};

[[nodiscard]] Result<planner::PerformanceProfile> fit_rows(const std::vector<planner::ProfileRow>& rows,
                                                           const planner::ProfileKey& key, const RowFit& fit);

struct Fitted {
  planner::PerformanceProfile profile;
  std::vector<std::string> notes;
  std::vector<planner::ProfileRow> rows = {};  // what it was fitted to, where it can be drawn
};

// What was fitted, with its notes and a table of its errors.
[[nodiscard]] std::string error_text(const Fitted& fitted);

// Where it goes.
struct ProfileOutput {
  std::string source;  // of the measurements, for the profile's own field
  std::string name;    // of the PerformanceProfile; empty: MODEL-ACCELERATOR-Ngpu
  std::optional<std::int64_t> kv_capacity_tokens;
  std::string file = "-";  // "-": to stdout, and the errors to stderr
};

// Error: the profile would not be valid, or the file cannot be written.
[[nodiscard]] Result<void> write_profile(Fitted fitted, const ProfileOutput& output, Console& console);

// That a command writes no profile and why. `could`: --output-anyway would.
void tell_refused(const std::string& command, const std::string& problem, const std::vector<std::string>& notes, bool could,
                  Console& console);

}  // namespace windlass::cli
