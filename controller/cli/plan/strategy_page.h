// The page of `windlass plan --report`: one self-contained HTML file with cost, attainment, the Pareto front and capacity; for
// a CLUSTER file, the chains on their nodes and the flow between them. Pure.
#pragma once

#include <string>
#include <vector>

#include "controller/cli/plan/strategy_text.h"

namespace windlass::cli {

// A deployment's attainment at several rates.
struct RateCurve {
  std::string name;        // short, for the legend
  std::string deployment;  // what it is
  struct Point {
    double requests_per_s = 0;
    double attainment = 0;
  };
  std::vector<Point> points;
};

// `curves` is empty for a problem with a cluster, whose placements are drawn instead. `notes` as in strategy_table().
[[nodiscard]] std::string strategy_page(const search::Problem& problem, const std::vector<StrategyOutcome>& outcomes,
                                        const std::vector<RateCurve>& curves, const std::vector<std::string>& notes = {});

}  // namespace windlass::cli
