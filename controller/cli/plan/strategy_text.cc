// Formats plans as tables; see strategy_text.h.
#include "controller/cli/plan/strategy_text.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "controller/cli/console/plan_text.h"
#include "controller/cli/console/text_table.h"
#include "controller/cli/plan/placement_text.h"

namespace windlass::cli {
namespace {

constexpr std::size_t kNotesShown = 8;

std::string rate(double requests_per_s) { return requests_per_s > 0 ? fmt::format("{:.4g}/s", requests_per_s) : "-"; }

// Cells in the order of the table's columns.
std::vector<std::string> figures(const search::Prediction& predicted) {
  if (!predicted.simulated && !(predicted.ttft_s > 0)) return {"-", "-", "-", rate(predicted.capacity_requests_per_s)};
  return {seconds_text(predicted.ttft_s), seconds_text(predicted.tpot_s), percent_text(predicted.attainment),
          rate(predicted.capacity_requests_per_s)};
}

std::string headline(const search::Problem& problem, const search::Offer& plan) {
  if (plan.holds) return "meets the objectives";
  if (plan.deployment.chains.empty()) return "NOTHING MEETS THE OBJECTIVES; this plan comes closest";
  const double capacity = plan.predicted.capacity_requests_per_s;
  if (capacity >= problem.requests_per_s) return fmt::format("serves the rate, BUT {}", plan.missed);
  return fmt::format("SERVES AT MOST {:.4g} OF {:.4g} REQUESTS/S by the strategy's estimate", capacity, problem.requests_per_s);
}

std::string pools_table(const planner::Deployment& deployment) {
  TextTable pools({"ROLE", "ACCELERATOR", "WORKERS", "GPUS EACH", "TP", "PP", "BATCHING"});
  for (const planner::Pool& pool : deployment.pools) {
    const planner::WorkerSpec& spec = pool.spec;
    pools.add({dispatch::to_string(pool.role), spec.accelerator, std::to_string(pool.workers), std::to_string(spec.gpus()),
               std::to_string(spec.tensor_parallel), std::to_string(spec.pipeline_stages),
               planner::to_string(spec.engine.batching)});
  }
  return pools.text();
}

// The plan's resources and predictions.
std::string figures_text(const search::Problem& problem, const search::Offer& plan) {
  const search::Prediction& predicted = plan.predicted;
  const bool placed = !plan.deployment.chains.empty();
  const std::string capacity = rate(predicted.capacity_requests_per_s);
  std::string text =
      fmt::format("\n{}{} GPUs, {} per hour, {:.3g} kW at most{}\n", plan.gpus,
                  placed ? fmt::format(" of {}", problem.cluster->gpus()) : "", number_text(plan.cost_per_hour),
                  plan.power_watts / 1e3, placed ? fmt::format("; up to {} by the strategy's estimate", capacity) : "");
  if (placed && !predicted.simulated) return text;
  using Interval = search::PredictionInterval;
  const auto& interval = predicted.interval;
  const auto with = [](const std::optional<planner::Interval>& ends, double value, const auto& text_of) {
    return ends ? interval_text(text_of(value), text_of(ends->low), text_of(ends->high)) : text_of(value);
  };
  const auto figure = [&](planner::Interval Interval::*ends, double value, const auto& text_of) {
    return with(interval ? std::optional((*interval).*ends) : std::nullopt, value, text_of);
  };
  const auto seconds = [](double value) { return seconds_text(value); };
  const std::string meets = placed ? ""
                                   : "; meets them up to " + with(interval ? interval->capacity_requests_per_s : std::nullopt,
                                                                  predicted.capacity_requests_per_s, rate);
  text +=
      fmt::format("at {:.4g} requests/s, {}: TTFT {}, TPOT {}, {} within the objectives{}\n", problem.requests_per_s,
                  predicted.simulated ? "simulated" : "by closed form", figure(&Interval::ttft_s, predicted.ttft_s, seconds),
                  figure(&Interval::tpot_s, predicted.tpot_s, seconds),
                  figure(&Interval::attainment, predicted.attainment, [](double value) { return percent_text(value); }), meets);
  if (interval) text += fmt::format("In brackets: 90% intervals. Times: {}.\n", basis_text(planner::to_string(interval->from)));
  return text;
}

std::string what_of(const search::Rejection& other) { return other.what.empty() ? describe(other.deployment) : other.what; }

std::string runners_up(const search::Offer& plan) {
  if (plan.considered.empty()) return "";
  // For placements, latencies are predicted for the plan only.
  const bool placed = !plan.deployment.chains.empty();
  std::vector<std::string> head = {"RUNNER-UP", "COST/H"};
  if (!placed) head.insert(head.end(), {"TTFT", "TPOT", "ATTAINMENT"});
  head.insert(head.end(), {"CAPACITY", "REJECTED BECAUSE"});
  TextTable others(head);
  for (std::size_t i = 0; i < std::min(kRunnersUpShown, plan.considered.size()); ++i) {
    const search::Rejection& other = plan.considered[i];
    std::vector<std::string> row = {what_of(other), number_text(other.cost_per_hour)};
    std::vector<std::string> cells = figures(other.predicted);
    if (placed) cells.erase(cells.begin(), cells.end() - 1);
    std::move(cells.begin(), cells.end(), std::back_inserter(row));
    row.push_back(other.rejected_because);
    others.add(std::move(row));
  }
  return "\n" + others.text() + more_text(plan.considered.size(), kRunnersUpShown);
}

std::string notes_text(const std::vector<std::string>& notes) {
  if (notes.empty()) return "";
  std::string text = "\nNotes on the file:\n";
  for (std::size_t i = 0; i < std::min(kNotesShown, notes.size()); ++i) text += wrapped(notes[i], 2);
  if (notes.size() > kNotesShown) text += fmt::format("  and {} more\n", notes.size() - kNotesShown);
  return text;
}

}  // namespace

std::string strategy_table(const search::Problem& problem, const StrategyOutcome& outcome,
                           const std::vector<std::string>& notes) {
  const search::Offer& plan = *outcome.plan;
  const bool placed = !plan.deployment.chains.empty();
  std::string text = fmt::format("{}, strategy {}: {}\n\n", problem.name, plan.strategy, headline(problem, plan));
  text += placed ? placement_table(*problem.cluster, plan.deployment) : pools_table(plan.deployment);
  text += figures_text(problem, plan);
  if (!plan.reasons.empty()) text += "\nWhy:\n";
  for (const std::string& reason : plan.reasons) text += wrapped(reason, 2);
  text += runners_up(plan);
  if (placed) text += notes_text(notes);
  return text + fmt::format("\n{} {}, {:.2f} s{}\n", plan.trials > 0 ? plan.trials : plan.iterations,
                            plan.trials > 0 ? "simulations" : "refinements", outcome.wall_s,
                            plan.stopped ? ", stopped before the search was complete" : "");
}

std::string comparison_table(const search::Problem& problem, const std::vector<StrategyOutcome>& outcomes) {
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
  const char* told = problem.cluster == nullptr
                         ? ""
                         : "\nhexgen2 and huawei place on nodes and links; the others know only the number "
                           "of GPUs of each kind and one network.\n";
  return table.text() + told + (refused.empty() ? "" : "\n" + refused);
}

}  // namespace windlass::cli
