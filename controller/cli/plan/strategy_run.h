// Runs strategies for `windlass plan` under a time limit and shows their progress; prints plans as JSON or YAML.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "controller/cli/console/console.h"
#include "controller/cli/console/progress_line.h"
#include "controller/cli/plan/strategy_text.h"
#include "planner/base/executor.h"
#include "planner/strategies/strategies.h"

namespace windlass::cli {

// Borrows the executor and the progress line.
class StrategyRunner {
 public:
  // The time limit applies to each strategy; 0: none.
  StrategyRunner(Executor& executor, double time_limit_s, ProgressLine& line)
      : executor_(executor), time_limit_s_(time_limit_s), line_(line) {}

  // Placements come from closed forms, so this also runs them in the simulator.
  [[nodiscard]] StrategyOutcome run(const search::NamedStrategy& strategy, const search::Problem& problem);

 private:
  Executor& executor_;
  double time_limit_s_;
  ProgressLine& line_;
};

// The plan, or the strategy's name and error.
[[nodiscard]] nlohmann::ordered_json json_of(const search::Problem& problem, const StrategyOutcome& outcome);

// `output` is "json" or "yaml".
void print_structured(const nlohmann::ordered_json& json, const std::string& output, Console& console);

}  // namespace windlass::cli
