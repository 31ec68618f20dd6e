// See strategy_text.h.
#include "controller/cli/plan/strategy_text.h"

#include <fmt/format.h>

#include "controller/cli/console/text_table.h"

namespace windlass::cli {
namespace {

std::string rate(double requests_per_s) { return requests_per_s > 0 ? fmt::format("{:.4g}/s", requests_per_s) : "-"; }

// In the table's order.
std::vector<std::string> figures(const search::Prediction& predicted) {
  if (!predicted.simulated && !(predicted.ttft_s > 0)) return {"-", "-", "-", rate(predicted.capacity_requests_per_s)};
  return {seconds_text(predicted.ttft_s), seconds_text(predicted.tpot_s), percent_text(predicted.attainment),
          rate(predicted.capacity_requests_per_s)};
}

}  // namespace

std::string strategy_table(const search::Problem& problem, const StrategyOutcome& outcome) {
  const search::Offer& plan = *outcome.plan;
  TextTable pools({"ROLE", "ACCELERATOR", "WORKERS", "GPUS EACH", "TP", "PP", "BATCHING"});
  for (const planner::Pool& pool : plan.deployment.pools) {
    const planner::WorkerSpec& spec = pool.spec;
    pools.add({dispatch::to_string(pool.role), spec.accelerator, std::to_string(pool.workers), std::to_string(spec.gpus()),
               std::to_string(spec.tensor_parallel), std::to_string(spec.pipeline_stages),
               planner::to_string(spec.engine.batching)});
  }
  std::string text = fmt::format("{}, strategy {}: {}\n\n", problem.name, plan.strategy,
                                 plan.holds ? "meets the objectives" : "NOTHING MEETS THE OBJECTIVES; this is nearest");
  text += pools.text();
  const search::Prediction& predicted = plan.predicted;
  text += fmt::format("\n{} GPUs, {} an hour, {:.3g} kW at most\n", plan.gpus, number_text(plan.cost_per_hour),
                      plan.power_watts / 1e3);
  text += fmt::format("at {:.4g} requests/s: TTFT {}, TPOT {}, {} inside the objectives{}; holds up to {}\n",
                      problem.requests_per_s, seconds_text(predicted.ttft_s), seconds_text(predicted.tpot_s),
                      percent_text(predicted.attainment), predicted.simulated ? " (simulated)" : " (closed form)",
                      rate(predicted.capacity_requests_per_s));
  if (!plan.reasons.empty()) text += "\nWhy:\n";
  for (const std::string& reason : plan.reasons) text += wrapped(reason, 2);
  if (!plan.considered.empty()) {
    TextTable others({"RUNNER-UP", "COST/H", "TTFT", "TPOT", "ATTAINMENT", "CAPACITY", "LOST BECAUSE"});
    for (std::size_t i = 0; i < std::min(kRunnersUpShown, plan.considered.size()); ++i) {
      const search::Rejection& other = plan.considered[i];
      std::vector<std::string> row = {describe(other.deployment), number_text(other.cost_per_hour)};
      for (std::string& figure : figures(other.predicted)) row.push_back(std::move(figure));
      row.push_back(other.rejected_because);
      others.add(std::move(row));
    }
    text += "\n" + others.text();
    if (plan.considered.size() > kRunnersUpShown) {
      text += fmt::format("and {} more: -o json\n", plan.considered.size() - kRunnersUpShown);
    }
  }
  text += fmt::format("\n{} simulations, {:.2f} s{}\n", plan.trials, outcome.wall_s,
                      plan.stopped ? ", stopped before the search was through" : "");
  return text;
}

std::string comparison_table(const std::vector<StrategyOutcome>& outcomes) {
  TextTable table({"STRATEGY", "HOLDS", "PLAN", "GPUS", "COST/H", "TTFT", "TPOT", "ATTAINMENT", "CAPACITY", "SECONDS"});
  std::string refused;
  for (const StrategyOutcome& outcome : outcomes) {
    if (!outcome.plan) {
      refused += wrapped(fmt::format("{}: {}", outcome.strategy, outcome.error), 0);
      continue;
    }
    const search::Offer& plan = *outcome.plan;
    std::vector<std::string> row = {outcome.strategy, plan.holds ? "yes" : "no", describe(plan.deployment),
                                    std::to_string(plan.gpus), number_text(plan.cost_per_hour)};
    for (std::string& figure : figures(plan.predicted)) row.push_back(std::move(figure));
    row.push_back(fmt::format("{:.2f}", outcome.wall_s));
    table.add(std::move(row));
  }
  return table.text() + (refused.empty() ? "" : "\n" + refused);
}

}  // namespace windlass::cli
