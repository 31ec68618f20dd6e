// What strategies planned, as text for people: one plan with its runners-up, several beside each other. Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::cli {

// A strategy's plan and how long it took; or why there is none.
struct StrategyOutcome {
  std::string strategy;
  std::optional<search::Offer> plan;
  std::string error;        // where there is no plan
  bool infeasible = false;  // because nothing can be deployed or meet the objectives, and no nearest plan is known
  double wall_s = 0;
};

// A line per pool, or where it is placed on nodes per chain and pair; what is predicted, why, the runners-up, and `notes`: what
// the file left open. REQUIRES: a plan.
[[nodiscard]] std::string strategy_table(const search::Problem& problem, const StrategyOutcome& outcome,
                                         const std::vector<std::string>& notes = {});

// A line per strategy.
[[nodiscard]] std::string comparison_table(const search::Problem& problem, const std::vector<StrategyOutcome>& outcomes);

}  // namespace windlass::cli
