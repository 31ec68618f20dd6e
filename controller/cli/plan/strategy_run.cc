// Runs strategies and prints structured output; see strategy_run.h.
#include "controller/cli/plan/strategy_run.h"

#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "controller/api/yaml.h"
#include "metrics/host/clock.h"
#include "planner/strategies/core/plan_json.h"
#include "planner/strategies/core/plan_parts.h"

namespace windlass::cli {

StrategyOutcome StrategyRunner::run(const search::NamedStrategy& strategy, const search::Problem& problem) {
  const double begin_s = monotonic_s(), limit_s = time_limit_s_;
  search::Effort effort;
  effort.executor = &executor_;
  if (limit_s > 0) effort.stop = [begin_s, limit_s] { return monotonic_s() - begin_s > limit_s; };
  effort.progress = [&](std::string_view what, double share) {
    line_.tell([&](double) { return fmt::format("{}: {:.0f}%, {}", strategy.name, 100 * share, what); });
  };
  StrategyOutcome outcome;
  outcome.strategy = strategy.name;
  auto planned = strategy.plan(problem, effort);
  outcome.wall_s = monotonic_s() - begin_s;
  if (planned.ok()) {
    outcome.plan = std::move(planned).value();
    const bool placed = !outcome.plan->deployment.chains.empty();
    if (placed && !outcome.plan->predicted.simulated) confirm(problem, *outcome.plan);
  } else {
    outcome.error = planned.error().message;
    outcome.infeasible = planned.error().code == ErrorCode::kNotFound;
  }
  return outcome;
}

nlohmann::ordered_json json_of(const search::Problem& problem, const StrategyOutcome& outcome) {
  if (outcome.plan) return search::to_json(problem, *outcome.plan, outcome.wall_s);
  return {{"strategy", outcome.strategy}, {"error", outcome.error}};
}

void print_structured(const nlohmann::ordered_json& json, const std::string& output, Console& console) {
  if (output == "json") {
    console.out << json.dump(2) << "\n";
  } else {
    console.out << api::to_yaml(nlohmann::json::parse(json.dump()));
  }
}

}  // namespace windlass::cli
