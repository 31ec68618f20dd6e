// PlanScenario: the SCENARIO file of `windlass plan` (one without `cluster`) as plain data, and the question it asks.
//
// Three steps without file access, as for simulations: parse_plan_scenario(); sim::files_of(plan.scenario), which the caller
// reads; question_of(). docs/plan.md lists the fields. Pure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/catalog/known_accelerators.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/whatif/question.h"
#include "planner/whatif/scenario.h"

namespace windlass::search {

// Defaults: what a PerformanceProfile measured for the decode workers, otherwise the slowest of the accelerators' data sheets.
struct PlanNetwork {
  std::optional<double> within_node_bytes_per_s, between_nodes_bytes_per_s;
  std::optional<double> within_node_latency_s, between_nodes_latency_s;
  bool layer_wise = false;
};

struct PlanScenario {
  // One service. Its pools represent the accelerators; `workers` is the number of GPUs.
  sim::Scenario scenario;
  std::string accelerators_field = "accelerators";  // if the file has them
  KindSpace space;
  PlanNetwork network;
  std::vector<Limit> limits;
  std::optional<int> max_gpus;
  std::optional<double> max_cost_per_hour;
  std::optional<std::int64_t> requests_per_trial;
};

// Errors are "SOURCE:LINE: FIELD: RULE".
[[nodiscard]] Result<PlanScenario> parse_plan_scenario(std::string_view yaml, const std::string& source,
                                                       const planner::KnownAccelerators& known = {});

// `texts`: the content of each of sim::files_of(plan.scenario), by path. Errors name the file and line, or the scenario's line
// and field. `executor`: for reading operator tables and building models from them, or null.
[[nodiscard]] Result<Question> question_of(PlanScenario plan, const std::map<std::string, std::string>& texts,
                                           Executor* executor = nullptr);
// The same for strategies that make their own workers: no error if no worker fits (validate_question() instead of validate()).
[[nodiscard]] Result<Question> question_without_kinds(PlanScenario plan, const std::map<std::string, std::string>& texts,
                                                      Executor* executor = nullptr);

}  // namespace windlass::search
