// The measurements behind `windlass profile`: batches of one prompt size, sent at once to a worker that has nothing else to do,
// become rows of prompt time and token time.
//
// What a client sees is measured, so HTTP and the worker's own scheduling are in the times. A batch's prompt time is that of
// its last first token; its token time is that of the request which had its first token last, so that no prompt is worked on
// meanwhile. Pure but for `run`.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "controller/cli/load/load_generator.h"
#include "planner/perf/profile_table.h"

namespace windlass::cli {

struct ProfileGrid {
  std::vector<int> prompts = {};  // words; the rows say how many tokens the worker counted
  std::vector<int> batches = {};
  int max_tokens = 32;
  int repeats = 3;
};

struct ProfiledRows {
  std::vector<planner::ProfileRow> rows;
  std::vector<std::string> notes;  // what was left out, and why
};

struct ProfileProgress {
  std::size_t done = 0, cells = 0;
  int prompt = 0, batch = 0;
};

// The row of one batch. Error kFailedPrecondition: a request was refused, or its answer was too short to show a time per token;
// kUnavailable: one was lost.
[[nodiscard]] Result<planner::ProfileRow> profile_row(const load::LoadResult& result, const planner::ProfileKey& key,
                                                      int max_tokens);

// Runs every cell of the grid, after a batch that warms up. What the worker refuses is left out with a note. Error: a request
// was lost, or nothing could be measured.
[[nodiscard]] Result<ProfiledRows> profile_grid(const load::LoadOptions& target, const planner::ProfileKey& key,
                                                const ProfileGrid& grid,
                                                const std::function<Result<load::LoadResult>(const load::LoadOptions&)>& run,
                                                const std::function<void(const ProfileProgress&)>& on_progress);

// With Splitwise's columns, as `windlass fit` reads them.
[[nodiscard]] std::string profile_csv(const std::vector<planner::ProfileRow>& rows);

}  // namespace windlass::cli
