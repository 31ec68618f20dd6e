// The measurements behind `windlass profile`: batches of one prompt size, sent at once to a worker that has nothing else to do,
// become load points with a prompt time and a token time each.
//
// What a client sees is measured, so HTTP and the worker's own scheduling are in the times. A batch's prompt time is that of
// its last first token; its token time is that of the request which had its first token last, so that no prompt is worked on
// meanwhile. Batches that did not run at once tell of another batch size and are left out.
//
// Load points that are not given are chosen: batches double until an objective is passed, the throughput no longer grows or the
// endpoint runs no more at once; then prompts get four times as long until an objective is passed or the endpoint refuses them.
// Then all are repeated in turn, so that a machine that slows down slows all of them; last those whose runs scatter most, until
// the fit's error is small enough, time is up, or the runs agree and more of them would change nothing. Pure but for the world.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/load/generator/load_generator.h"
#include "controller/cli/profile/profile_cells.h"
#include "planner/perf/performance_profile.h"

namespace windlass::cli {

struct ProfileGrid {
  std::vector<int> prompts = {};       // words; the rows say how many tokens the worker counted. Empty: chosen
  std::vector<int> batches = {};       // empty: chosen
  std::optional<int> max_tokens = {};  // of an answer; none: as many as take long enough to be timed
  int repeats = 3;                     // of each load point, before those that scatter are repeated
  std::optional<double> ttft_s = {};   // objectives: nothing is chosen beyond the first load point that passes them
  std::optional<double> tpot_s = {};
  double max_error = 0.2;  // of the median error of prefill, and of decode
  double budget_s = 300;   // what is given is measured once all the same
};

struct ProfileProgress {
  std::size_t runs = 0, cells = 0;
  int prompt = 0, batch = 0;
  std::optional<double> error;  // of the worse phase, once a fit has been made
};

// What reaches beyond arithmetic.
struct ProfileWorld {
  std::function<Result<load::LoadResult>(const load::LoadOptions&)> run;
  std::function<double()> now_s;
  std::function<void(const ProfileProgress&)> on_progress = [](const ProfileProgress&) {};
};

// From the rows that stand for the load points.
using FitProfile = std::function<Result<planner::PerformanceProfile>(const std::vector<planner::ProfileRow>&)>;

struct MeasuredProfile {
  std::vector<ProfileCell> cells;
  std::vector<std::string> notes;  // what was left out, and why
  std::optional<planner::PerformanceProfile> profile;
  std::string problem;  // why the profile is useless, and what would help; empty: it keeps the bound
};

struct MeasuredBatch {
  planner::ProfileRow row;
  std::size_t at_once = 0;  // requests that had their first token before any had its last
};

// Error kFailedPrecondition: a request was refused, or its answer was too short to show a time per token; kUnavailable: one was
// lost.
[[nodiscard]] Result<MeasuredBatch> measured_batch(const load::LoadResult& result, const planner::ProfileKey& key,
                                                   int max_tokens);

// Error: a request was lost, or nothing could be measured. A fit that fails is a problem.
[[nodiscard]] Result<MeasuredProfile> measure_profile(const load::LoadOptions& target, const planner::ProfileKey& key,
                                                      const ProfileGrid& grid, const FitProfile& fit,
                                                      const ProfileWorld& world);

// With Splitwise's columns, as `windlass fit` reads them.
[[nodiscard]] std::string profile_csv(const std::vector<planner::ProfileRow>& rows);

}  // namespace windlass::cli
