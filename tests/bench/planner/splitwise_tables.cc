// Splitwise's Fig. 12, 18 and 19 (Patel et al., ISCA 2024): BLOOM-176B on machines of 8 A100 or H100; see splitwise_setting.h.
//
// Iso-power and iso-cost: the highest rate of each design within the budget of 40 H100 machines. Iso-throughput: the least
// power, or cost, that serves the rate of 40 H100 machines without a split.
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "planner/strategies/splitwise/splitwise.h"
#include "tests/bench/planner/experiments.h"
#include "tests/bench/planner/splitwise_setting.h"

namespace windlass::bench {
namespace {

using search::Goal;
using search::Offer;
using search::Problem;
using search::SplitDesign;

constexpr int kBudgetMachines = 40;  // H100

struct Design {
  const char* name;
  int prompts, tokens;
  bool split = true, cap = false;
};
constexpr Design kDesigns[] = {
    {"Baseline-A100", kA100Machine, kA100Machine, false}, {"Baseline-H100", kH100Machine, kH100Machine, false},
    {"Splitwise-AA", kA100Machine, kA100Machine},         {"Splitwise-HH", kH100Machine, kH100Machine},
    {"Splitwise-HA", kH100Machine, kA100Machine},         {"Splitwise-HHcap", kH100Machine, kH100Machine, true, true}};

SplitDesign design_of(const Problem& problem, const Design& design, const search::SplitwiseOptions& options) {
  if (!design.split) return search::baseline_design(problem, design.prompts, options);
  return search::splitwise_design(problem, design.prompts, design.tokens, design.cap, options);
}

std::string counts_of(const Offer& plan) {
  const auto& pools = plan.deployment.pools;
  if (pools.size() == 1) return fmt::format("{}P/T", pools[0].workers);
  return fmt::format("{}P, {}T", pools[0].workers, pools[1].workers);
}

int machines_of(const Offer& plan) {
  int machines = 0;
  for (const auto& pool : plan.deployment.pools) machines += pool.workers;
  return machines;
}

// The highest rate of each design within a budget, with its ratio to each baseline.
Result<std::string> budget_table(const std::string& data, Executor& executor, const std::string& trace, double power,
                                 double cost) {
  std::string text =
      "| design | machines | requests/s | of Baseline-A100 | of Baseline-H100 | cost | power "
      "|\n|---|---|---:|---:|---:|---:|---:|\n";
  double of_a100 = 0, of_h100 = 0;
  for (const Design& design : kDesigns) {
    WINDLASS_ASSIGN_OR_RETURN(SplitwiseSetting setting, splitwise_setting(data, "bloom-176b", trace, 70));
    Problem& problem = setting.problem;
    problem.goal = Goal::kThroughput;
    problem.max_cost_per_hour = cost;
    search::SplitwiseOptions options;
    options.search.max_power_watts = power;
    search::Effort effort;
    effort.executor = &executor;
    WINDLASS_ASSIGN_OR_RETURN(const Offer plan, search::plan_of_designs(problem, effort, options.search, design.name,
                                                                        {design_of(problem, design, options)}));
    const double rate = plan.predicted.capacity_requests_per_s;
    if (of_a100 == 0) {
      of_a100 = rate;
    } else if (of_h100 == 0) {
      of_h100 = rate;
    }
    text += fmt::format("| {} | {} | {:.0f} | {:.2f} | {} | {:.1f} | {:.1f} |\n", design.name, counts_of(plan), rate,
                        rate / of_a100, of_h100 == 0 ? std::string() : fmt::format("{:.2f}", rate / of_h100),
                        plan.cost_per_hour, plan.power_watts);
  }
  return text;
}

// The rate that 40 H100 machines sustain without a split.
Result<double> baseline_rate(const std::string& data, Executor& executor, const std::string& trace) {
  WINDLASS_ASSIGN_OR_RETURN(SplitwiseSetting setting, splitwise_setting(data, "bloom-176b", trace, 70));
  setting.problem.goal = Goal::kThroughput;
  setting.problem.max_gpus = 8 * kBudgetMachines;
  search::SplitwiseOptions options;
  search::Effort effort;
  effort.executor = &executor;
  WINDLASS_ASSIGN_OR_RETURN(const Offer plan,
                            search::plan_of_designs(setting.problem, effort, options.search, "baseline",
                                                    {search::baseline_design(setting.problem, kH100Machine, options)}));
  return plan.predicted.capacity_requests_per_s;
}

Result<std::string> throughput_table(const std::string& data, Executor& executor, const std::string& trace, double rate) {
  std::string text = fmt::format(
      "| design, {:.0f} requests/s | least power: machines | power | of Baseline-H100 | cost | least cost: machines | cost | "
      "of Baseline-H100 | power "
      "|\n|---|---|---:|---:|---:|---|---:|---:|---:|\n",
      rate);
  const double base_power = kBudgetMachines * kH100Power, base_cost = kBudgetMachines * kH100Cost;
  for (const Design& design : kDesigns) {
    text += fmt::format("| {} |", design.name);
    for (const Goal goal : {Goal::kPower, Goal::kCost}) {
      WINDLASS_ASSIGN_OR_RETURN(SplitwiseSetting setting, splitwise_setting(data, "bloom-176b", trace, rate));
      Problem& problem = setting.problem;
      problem.goal = goal;
      search::SplitwiseOptions options;
      search::Effort effort;
      effort.executor = &executor;
      WINDLASS_ASSIGN_OR_RETURN(const Offer plan, search::plan_of_designs(problem, effort, options.search, design.name,
                                                                          {design_of(problem, design, options)}));
      const bool power = goal == Goal::kPower;
      text += fmt::format(" {} | {:.1f} | {:.2f} | {:.1f} |", counts_of(plan), power ? plan.power_watts : plan.cost_per_hour,
                          power ? plan.power_watts / base_power : plan.cost_per_hour / base_cost,
                          power ? plan.cost_per_hour : plan.power_watts);
    }
    text += "\n";
  }
  return text;
}

// The number of 20 seeds in which all nine objectives are met.
Result<int> seeds_held(const Problem& problem, const search::Deployment& deployment) {
  int held = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    WINDLASS_ASSIGN_OR_RETURN(const auto run, search::try_out(problem, deployment, {70, 8400, seed, true}));
    held += search::judge(problem, run).holds ? 1 : 0;
  }
  return held;
}

// Fig. 12: the search's result, and the neighbourhood of both optima.
Result<std::string> figure_twelve(const std::string& data, Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(SplitwiseSetting setting, splitwise_setting(data, "bloom-176b", "code", 70));
  search::SplitwiseOptions options;
  options.machines = {kH100Machine};
  search::Effort effort;
  effort.executor = &executor;
  WINDLASS_ASSIGN_OR_RETURN(const Offer plan, search::splitwise_plan(setting.problem, effort, options));
  std::string text = fmt::format(
      "The search finds {} ({} machines, the paper's 27P, 3T are 30) in {} trials of {:.1f} million iterations.\n\n",
      counts_of(plan), machines_of(plan), plan.trials, static_cast<double>(plan.iterations) / 1e6);
  text +=
      "Seeds of 20 in which all nine objectives hold:\n\n| prompt machines | 1 token machine | 2 | 3 | 4 | 5 | 6 "
      "|\n|---|---:|---:|---:|---:|---:|---:|\n";
  const SplitDesign design = search::splitwise_design(setting.problem, kH100Machine, kH100Machine, false, options);
  for (int prompts = 23; prompts <= 29; ++prompts) {
    const auto column = [&](std::size_t tokens) {
      return seeds_held(setting.problem, design.deploy({prompts, static_cast<int>(tokens) + 1}));
    };
    WINDLASS_ASSIGN_OR_RETURN(const auto held, parallel_map<Result<int>>(executor, 6, column));
    text += fmt::format("| {} |", prompts);
    for (const auto& count : held) {
      if (!count.ok()) return count.error();
      text += fmt::format(" {} |", *count);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

Result<std::vector<PlannerTable>> splitwise_tables(const std::string& data, Executor& executor) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  constexpr double kRounding = 1e-6;
  std::vector<PlannerTable> tables;
  WINDLASS_ASSIGN_OR_RETURN(const std::string twelve, figure_twelve(data, executor));
  tables.push_back({"splitwise-12", twelve});
  for (const std::string trace : {"conv", "code"}) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string power,
                              budget_table(data, executor, trace, kBudgetMachines * kH100Power + kRounding, kNoLimit));
    tables.push_back({"splitwise-18-power-" + trace, power});
    WINDLASS_ASSIGN_OR_RETURN(const std::string cost,
                              budget_table(data, executor, trace, kNoLimit, kBudgetMachines * kH100Cost + kRounding));
    tables.push_back({"splitwise-18-cost-" + trace, cost});
    WINDLASS_ASSIGN_OR_RETURN(const double rate, baseline_rate(data, executor, trace));
    WINDLASS_ASSIGN_OR_RETURN(const std::string throughput, throughput_table(data, executor, trace, rate));
    tables.push_back({"splitwise-19-" + trace, throughput});
  }
  return tables;
}

}  // namespace windlass::bench
