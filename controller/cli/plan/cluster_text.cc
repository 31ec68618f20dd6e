// See cluster_text.h.
#include "controller/cli/plan/cluster_text.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/console/text_table.h"
#include "planner/strategies/clusters/placed_pools.h"

namespace windlass::cli {
namespace {

constexpr std::size_t kGroupsShown = 64;
constexpr std::size_t kPairsShown = 64;
constexpr std::size_t kNotesShown = 8;

std::string flow_rate(double requests_per_s) { return fmt::format("{:.4g}/s", requests_per_s); }

std::string more(std::size_t there, std::size_t shown) {
  return there > shown ? fmt::format("and {} more: -o json\n", there - shown) : "";
}

// "n0[0-1]: 30 layers, n1[0]: 18".
std::string stages_text(const hetero::GpuCluster& cluster, const hetero::Group& group) {
  std::string text;
  for (const hetero::Stage& stage : group.stages) {
    text += fmt::format("{}{}: {}{}", text.empty() ? "" : ", ", gpus_text(cluster, stage.gpus), stage.layers,
                        text.empty() ? " layers" : "");
  }
  return text;
}

// "2", or of unlike stages "2, 1".
std::string degrees_text(const hetero::Group& group) {
  std::vector<std::size_t> degrees;
  for (const hetero::Stage& stage : group.stages) degrees.push_back(stage.gpus.size());
  if (std::adjacent_find(degrees.begin(), degrees.end(), std::not_equal_to<>()) == degrees.end()) degrees.resize(1);
  return fmt::format("{}", fmt::join(degrees, ", "));
}

std::string groups_table(const hetero::GpuCluster& cluster, const hetero::ClusterPlan& plan) {
  TextTable groups({"GROUP", "ROLE", "GPUS", "TP", "PP", "STAGES", "BATCH", "CAPACITY"});
  for (std::size_t g = 0; g < std::min(kGroupsShown, plan.groups.size()); ++g) {
    const hetero::Group& group = plan.groups[g];
    groups.add({std::to_string(g), dispatch::to_string(group.role), gpus_text(cluster, hetero::gpus_of(group)),
                degrees_text(group), std::to_string(group.stages.size()), stages_text(cluster, group),
                std::to_string(group.batch), flow_rate(group.capacity_requests_per_s)});
  }
  return groups.text() + more(plan.groups.size(), kGroupsShown);
}

std::string flow_table(const hetero::ClusterPlan& plan) {
  if (plan.flow.empty()) return "";
  TextTable pairs({"FROM", "TO", "REQUESTS", "SHARE", "OF ITS PATH"});
  for (std::size_t e = 0; e < std::min(kPairsShown, plan.flow.size()); ++e) {
    const hetero::FlowEdge& edge = plan.flow[e];
    pairs.add({std::to_string(edge.from), std::to_string(edge.to), flow_rate(edge.requests_per_s), percent_text(edge.share),
               edge.capacity_requests_per_s > 0 ? percent_text(edge.requests_per_s / edge.capacity_requests_per_s) : "-"});
  }
  return "\n" + pairs.text() + more(plan.flow.size(), kPairsShown);
}

std::string headline(const search::Problem& problem, const ClusterOutcome::Placed& placed) {
  if (!placed.plan.holds) {
    return fmt::format("SERVES AT MOST {:.4g} OF {:.4g} REQUESTS/S by its own count", placed.plan.capacity_requests_per_s,
                       problem.requests_per_s);
  }
  if (placed.trial.meets_objectives) return "meets the objectives";
  return fmt::format("serves the rate, BUT {}", placed.trial.missed);
}

std::vector<std::string> figures(const search::Prediction& predicted, double capacity_requests_per_s) {
  const std::string capacity = capacity_requests_per_s > 0 ? flow_rate(capacity_requests_per_s) : "-";
  if (!predicted.simulated && !(predicted.ttft_s > 0)) return {"-", "-", "-", capacity};
  return {seconds_text(predicted.ttft_s), seconds_text(predicted.tpot_s), percent_text(predicted.attainment), capacity};
}

}  // namespace

std::string gpus_text(const hetero::GpuCluster& cluster, const std::vector<int>& gpus) {
  return fmt::format("{}", fmt::join(hetero::gpu_names(cluster, gpus), " "));
}

std::string placement_table(const hetero::ClusterProblem& problem, const ClusterOutcome& outcome,
                            const std::vector<std::string>& notes) {
  const search::Problem& search = *problem.search;
  const hetero::ClusterPlan& plan = outcome.placed->plan;
  std::string text = fmt::format("{}, strategy {}: {}\n\n", search.name, plan.strategy, headline(search, *outcome.placed));
  text += groups_table(problem.cluster, plan) + flow_table(plan);
  text += fmt::format("\n{} of {} GPUs, {} an hour, {:.3g} kW at most; up to {} by the strategy's own count\n", plan.gpus,
                      problem.cluster.gpus(), number_text(plan.cost_per_hour), plan.power_watts / 1e3,
                      flow_rate(plan.capacity_requests_per_s));
  if (const search::Prediction& predicted = outcome.placed->trial.predicted; predicted.simulated) {
    text += fmt::format("at {:.4g} requests/s: TTFT {}, TPOT {}, {} inside the objectives (simulated)\n", search.requests_per_s,
                        seconds_text(predicted.ttft_s), seconds_text(predicted.tpot_s), percent_text(predicted.attainment));
  }
  if (!plan.reasons.empty()) text += "\nWhy:\n";
  for (const std::string& reason : plan.reasons) text += wrapped(reason, 2);
  if (!plan.considered.empty()) {
    TextTable others({"RUNNER-UP", "COST/H", "CAPACITY", "LOST BECAUSE"});
    for (std::size_t i = 0; i < std::min(kRunnersUpShown, plan.considered.size()); ++i) {
      const hetero::ClusterPlan::Runner& other = plan.considered[i];
      others.add(
          {other.what, number_text(other.cost_per_hour), flow_rate(other.capacity_requests_per_s), other.rejected_because});
    }
    text += "\n" + others.text() + more(plan.considered.size(), kRunnersUpShown);
  }
  if (!notes.empty()) text += "\nTaken, or noted, of the file:\n";
  for (std::size_t i = 0; i < std::min(kNotesShown, notes.size()); ++i) text += wrapped(notes[i], 2);
  if (notes.size() > kNotesShown) text += fmt::format("  and {} more\n", notes.size() - kNotesShown);
  text += fmt::format("\n{} refinements, {:.2f} s{}\n", plan.iterations, outcome.wall_s,
                      plan.stopped ? ", stopped before the search was through" : "");
  return text;
}

std::string cluster_comparison_table(const hetero::ClusterProblem& problem, const std::vector<ClusterOutcome>& outcomes) {
  TextTable table({"STRATEGY", "HOLDS", "PLAN", "GPUS", "COST/H", "TTFT", "TPOT", "ATTAINMENT", "CAPACITY", "SECONDS"});
  std::string refused;
  for (const ClusterOutcome& outcome : outcomes) {
    if (!outcome.planned()) {
      refused += wrapped(fmt::format("{}: {}", outcome.strategy, outcome.error), 0);
      continue;
    }
    const bool placed = outcome.placed.has_value();
    std::vector<std::string> row = {
        outcome.strategy, outcome.holds() ? "yes" : "no",
        placed ? hetero::describe(problem.cluster, outcome.placed->plan) : describe(outcome.plan->deployment),
        std::to_string(placed ? outcome.placed->plan.gpus : outcome.plan->gpus), number_text(outcome.cost_per_hour())};
    const search::Prediction& predicted = placed ? outcome.placed->trial.predicted : outcome.plan->predicted;
    for (std::string& figure : figures(predicted, outcome.capacity_requests_per_s())) row.push_back(std::move(figure));
    row.push_back(fmt::format("{:.2f}", outcome.wall_s));
    table.add(std::move(row));
  }
  return table.text() +
         "\nhexgen2 and huawei place on the nodes and their links; the others know how many GPUs there are of each kind, and "
         "one "
         "network.\n" +
         (refused.empty() ? "" : "\n" + refused);
}

}  // namespace windlass::cli
