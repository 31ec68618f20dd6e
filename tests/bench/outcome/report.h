// The outcome experiment's table and chart.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/outcome/run.h"

namespace windlass::bench {

struct OutcomeRow {
  const OutcomeWorkload* workload = nullptr;
  const OutcomeSetting* setting = nullptr;
  std::vector<OutcomeRun> runs;  // of each rule that was asked for, in their order
};

// "Windlass", "fixed at the peak", ...
[[nodiscard]] std::string title_of(const std::string& rule);

// Markdown: what was simulated, then a line a workload and rule.
[[nodiscard]] std::string outcome_table(const std::vector<OutcomeRow>& rows);

// One SVG: attainment against GPU-hours of each workload, and the workers over time of one.
[[nodiscard]] std::string outcome_chart(const std::vector<OutcomeRow>& rows, const std::string& over_time);

}  // namespace windlass::bench
