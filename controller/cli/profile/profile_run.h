// Takes the measurements of `windlass profile`: sends batches of equal prompts to an otherwise idle worker. Each load point
// (prompt length and batch size) gets a prompt time and a token time.
//
// Times are measured at the client, so they include HTTP and the worker's scheduling. A batch's prompt time is the time until
// every request has its first token. An engine that begins when the first request arrives spreads it over several iterations;
// the times of the first tokens tell how many. A batch's token time is that of the request whose first token came last, because
// no prompt is processed after that. Batches whose requests did not run concurrently represent another batch size and are
// skipped.
//
// Sizes that are not given are chosen: batches double until an objective is missed, the throughput stops growing or the
// endpoint queues requests; then prompts get four times longer until an objective is missed or the endpoint rejects them. Then
// all load points are repeated in turn, so that a slower machine affects all of them. Last, those with the most scatter are
// repeated until the fit's error is small enough, time is up, or the runs agree so well that more would change nothing. Pure
// except for the callbacks.
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
  std::vector<int> prompts = {};       // words; the rows have the worker's token counts. Empty: chosen
  std::vector<int> batches = {};       // empty: chosen
  std::optional<int> max_tokens = {};  // per answer; nullopt: enough to be timed
  int repeats = 3;                     // runs of each load point, before noisy ones are repeated
  std::optional<double> ttft_s = {};   // objectives: sizes are chosen up to the first load point that misses one
  std::optional<double> tpot_s = {};
  double max_error = 0.2;  // highest median error of prefill and of decode
  double budget_s = 300;   // given sizes are measured once even beyond it
};

struct ProfileProgress {
  std::size_t runs = 0, cells = 0;
  int prompt = 0, batch = 0;
  std::optional<double> error;  // of the worse phase; nullopt before the first fit
};

// Callbacks for everything beyond arithmetic.
struct ProfileWorld {
  std::function<Result<load::LoadResult>(const load::LoadOptions&)> run;
  std::function<double()> now_s;
  std::function<void(const ProfileProgress&)> on_progress = [](const ProfileProgress&) {};
};

// Fits a profile to the rows that represent the load points.
using FitProfile = std::function<Result<planner::PerformanceProfile>(const std::vector<planner::ProfileRow>&)>;

struct MeasuredProfile {
  std::vector<ProfileCell> cells;
  std::vector<std::string> notes;  // what was skipped, and why
  std::optional<planner::PerformanceProfile> profile;
  std::string problem;  // why the profile is not good enough, and what would help; empty: it meets the bound
};

struct MeasuredBatch {
  planner::ProfileRow row;
  std::size_t at_once = 0;  // requests with a first token before any request had its last
};

// Errors: kFailedPrecondition if a request was rejected or its answer was too short to measure a time per token; kUnavailable
// if one was lost.
[[nodiscard]] Result<MeasuredBatch> measured_batch(const load::LoadResult& result, const planner::ProfileKey& key,
                                                   int max_tokens);

// Errors: a request was lost, or nothing could be measured. A failed fit is not an error but a problem of the result.
[[nodiscard]] Result<MeasuredProfile> measure_profile(const load::LoadOptions& target, const planner::ProfileKey& key,
                                                      const ProfileGrid& grid, const FitProfile& fit,
                                                      const ProfileWorld& world);

// CSV with Splitwise's columns, as `windlass fit` reads it.
[[nodiscard]] std::string profile_csv(const std::vector<planner::ProfileRow>& rows);

}  // namespace windlass::cli
