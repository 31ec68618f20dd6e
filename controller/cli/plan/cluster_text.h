// What strategies placed on a cluster, as text for people: one placement with its groups and flow, several plans beside each
// other. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/cli/plan/strategy_text.h"
#include "planner/whatif/cluster_trial.h"

namespace windlass::cli {

// A placement of a strategy for clusters in place of a plan, or the plan of a strategy that knows of no network.
struct ClusterOutcome : StrategyOutcome {
  struct Placed {
    hetero::ClusterPlan plan;
    hetero::ClusterTrial trial;
  };
  std::optional<Placed> placed;

  [[nodiscard]] bool planned() const { return placed.has_value() || plan.has_value(); }
  // What a plan is for: the rate, inside the objectives.
  [[nodiscard]] bool holds() const { return placed ? placed->trial.meets_objectives : plan && plan->holds; }
  [[nodiscard]] double cost_per_hour() const { return placed ? placed->plan.cost_per_hour : plan->cost_per_hour; }
  [[nodiscard]] double capacity_requests_per_s() const {
    return placed ? placed->plan.capacity_requests_per_s : plan->predicted.capacity_requests_per_s;
  }
};

// A line per group and per pair that shares requests, what is predicted, why, the runners-up, and what the file left open.
// REQUIRES: outcome.placed.
[[nodiscard]] std::string placement_table(const hetero::ClusterProblem& problem, const ClusterOutcome& outcome,
                                          const std::vector<std::string>& notes);

// A line per strategy. REQUIRES: one of them planned.
[[nodiscard]] std::string cluster_comparison_table(const hetero::ClusterProblem& problem,
                                                   const std::vector<ClusterOutcome>& outcomes);

// "n0[0-1] n1[3]".
[[nodiscard]] std::string gpus_text(const hetero::GpuCluster& cluster, const std::vector<int>& gpus);

}  // namespace windlass::cli
