// The page of `windlass plan --report`: one self-contained HTML file with cost over attainment, the Pareto front, and what the
// plan can take; of a CLUSTER file with the chains on their nodes and the flow between them. Pure.
#pragma once

#include <string>
#include <vector>

#include "controller/cli/plan/strategy_text.h"

namespace windlass::cli {

// Attainment of a deployment over the rate.
struct RateCurve {
  std::string name;        // short, for the legend
  std::string deployment;  // what it is
  struct Point {
    double requests_per_s = 0;
    double attainment = 0;
  };
  std::vector<Point> points;
};

// `curves`: none where the problem has a cluster: then each placement is drawn instead. `notes` as in strategy_table().
[[nodiscard]] std::string strategy_page(const search::Problem& problem, const std::vector<StrategyOutcome>& outcomes,
                                        const std::vector<RateCurve>& curves, const std::vector<std::string>& notes = {});

}  // namespace windlass::cli
