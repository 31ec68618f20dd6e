// Compares runs of `windlass load`: the same load against two or more deployments, side by side. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::cli {

struct ComparedRequest {
  double scheduled_s = 0;
  std::optional<double> ttft_s, tpot_s;
};

struct ComparedRun {
  std::string name;
  std::size_t sent = 0, completed = 0, rejected = 0, lost = 0;
  double elapsed_s = 0;
  std::optional<double> attainment, ttft_p95_s, tpot_p95_s;  // as the client measured them
  std::vector<ComparedRequest> requests;                     // by scheduled time
  std::optional<double> worker_seconds;
  std::vector<std::pair<double, double>> workers;  // (seconds, ready workers from then on), ascending; may be empty
};

struct Objectives {
  std::optional<double> ttft_s, tpot_s;
};

// Reads the output of `windlass load -o json`. Error: kInvalidArgument with the field's path.
[[nodiscard]] Result<ComparedRun> compared_run(std::string name, std::string_view json);

// Adds worker counts: from what `windlass top --record` wrote about one service during the run, or a fixed count. Error:
// kInvalidArgument with the line and the column.
[[nodiscard]] Result<void> add_workers(ComparedRun& run, std::string_view csv);
void add_workers(ComparedRun& run, double count);

// A table, and a chart of TTFT for a terminal of 80 columns.
[[nodiscard]] std::string comparison_text(const std::vector<ComparedRun>& runs, const Objectives& objectives);
// The same as an HTML page with charts of TTFT, TPOT and workers.
[[nodiscard]] std::string comparison_page(const std::vector<ComparedRun>& runs, const Objectives& objectives);

}  // namespace windlass::cli
