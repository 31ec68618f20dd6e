// The outcome experiment's table and chart.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/outcome/run.h"

namespace windlass::bench {

struct OutcomeRow {
  const OutcomeWorkload* workload = nullptr;
  const OutcomeSetting* setting = nullptr;
  std::vector<OutcomeRun> runs;  // one per requested rule, in the order of the request
};

// "Windlass", "fixed at the peak", ...
[[nodiscard]] std::string title_of(const std::string& rule);

// Markdown: the simulated setting, then one line per workload and rule.
[[nodiscard]] std::string outcome_table(const std::vector<OutcomeRow>& rows);

// One SVG: attainment against GPU-hours for each workload, and workers over time for one workload.
[[nodiscard]] std::string outcome_chart(const std::vector<OutcomeRow>& rows, const std::string& over_time);

}  // namespace windlass::bench
