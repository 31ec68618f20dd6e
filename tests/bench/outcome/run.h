// One run of the outcome experiment: a workload under one rule in the serving simulator, with totals and figures by the minute.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/sim/serving_simulation.h"
#include "planner/whatif/policy_autoscaler.h"
#include "tests/bench/outcome/setting.h"
#include "tests/reference/autoscalers/baseline_clairvoyant.h"

namespace windlass::bench {

struct OutcomeMinute {
  int arrived = 0;
  int missed_ttft = 0;  // of these
  int missed_tpot = 0;
  double ready = 0;  // workers, mean over the minute
  double held = 0;   // ready workers plus those that start or drain
};

struct OutcomeRun {
  std::string rule;
  double attainment = 0;
  double gpu_hours = 0;
  double ttft_p99_s = 0;
  double tpot_p99_s = 0;
  int max_workers = 0;
  std::vector<OutcomeMinute> minutes;
  std::vector<sim::PolicyAutoscaler::Decision> decisions;  // of Windlass
  std::vector<sim::ScheduleStep> steps;                    // of a schedule
};

// `controller` may be null: then the first workers stay. `minutes`: also record figures by the minute, which costs time.
[[nodiscard]] Result<OutcomeRun> run_outcome(const OutcomeWorkload& workload, const OutcomeSetting& setting,
                                             sim::ClusterController* controller, int first_workers, bool minutes);

// The rules in the order of the table: "windlass", "fixed", "hpa", "keda", "wva", "dynamo", "clairvoyant".
[[nodiscard]] const std::vector<std::string>& outcome_rules();

[[nodiscard]] Result<OutcomeRun> run_rule(const std::string& rule, const OutcomeWorkload& workload,
                                          const OutcomeSetting& setting);

}  // namespace windlass::bench
