// Formats strategies' plans for people: one plan with its runners-up, or a comparison of several. Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::cli {

// A strategy's plan, or why there is none, and how long it took.
struct StrategyOutcome {
  std::string strategy;
  std::optional<search::Offer> plan;
  std::string error;        // if there is no plan
  bool infeasible = false;  // nothing can be deployed or meets the objectives, and no closest plan is known
  double wall_s = 0;
};

// One line per pool, or per chain and pair for a placement; then predictions, reasons, runners-up and, for a placement,
// `notes`: the assumptions about the file. REQUIRES: outcome has a plan.
[[nodiscard]] std::string strategy_table(const search::Problem& problem, const StrategyOutcome& outcome,
                                         const std::vector<std::string>& notes = {});

// One line per strategy.
[[nodiscard]] std::string comparison_table(const search::Problem& problem, const std::vector<StrategyOutcome>& outcomes);

}  // namespace windlass::cli
