// Runs strategies for `windlass plan` under a time limit, with their progress shown; and prints what came of them.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "controller/cli/console/console.h"
#include "controller/cli/console/progress_line.h"
#include "controller/cli/plan/strategy_text.h"
#include "planner/base/executor.h"
#include "planner/strategies/strategies.h"

namespace windlass::cli {

// Borrows the executor and the line.
class StrategyRunner {
 public:
  // 0: no limit; it is each strategy's own.
  StrategyRunner(Executor& executor, double time_limit_s, ProgressLine& line)
      : executor_(executor), time_limit_s_(time_limit_s), line_(line) {}

  // A placement, which closed forms make, is tried in the simulator.
  [[nodiscard]] StrategyOutcome run(const search::NamedStrategy& strategy, const search::Problem& problem);

 private:
  Executor& executor_;
  double time_limit_s_;
  ProgressLine& line_;
};

// A plan, or the name of the strategy with its error.
[[nodiscard]] nlohmann::ordered_json json_of(const search::Problem& problem, const StrategyOutcome& outcome);

// As "json" or "yaml".
void print_structured(const nlohmann::ordered_json& json, const std::string& output, Console& console);

}  // namespace windlass::cli
