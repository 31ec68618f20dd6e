// ServingReport combines the replications of one scenario; to_json() prints it as `windlass simulate -o json`.
//
// One report per service. Times and shares are means over the replications (`max`: the largest of all), with the half-width of
// their 95 % confidence interval. Counts such as requests, completed, refused and iterations are sums. Workers are those of the
// first replication. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "planner/perf/time_errors.h"
#include "planner/sim/recorder.h"
#include "planner/sim/serving_simulation.h"
#include "planner/whatif/policy_autoscaler.h"

namespace windlass::sim {

struct TimeEstimates {
  MeanEstimate mean, p50, p90, p95, p99;
  double max = 0;
};

// 90 % intervals, from runs in which every iteration is as much shorter, or longer, as the models' errors allow.
struct ReportIntervals {
  struct OfTime {
    planner::Interval p50, p95;
  };
  OfTime ttft, tpot, e2e;
  std::optional<planner::Interval> attainment = {};  // none without objectives
  planner::Provenance from = planner::Provenance::kDataSheet;
};

struct ServingReport {
  int replications = 1;
  std::uint64_t seed = 0;  // of the first replication; the next ones count up
  std::int64_t requests = 0, completed = 0, refused = 0, failed = 0, retried = 0;
  TimeEstimates scheduling_delay, ttft, tbt, tpot, e2e, normalised;
  struct Slowdown {
    TimeEstimates ttft, tbt, e2e;
  };
  std::optional<Slowdown> slowdown;
  std::optional<MeanEstimate> attainment;  // none without objectives
  std::optional<double> percentile;        // required percentage of requests that meet the objectives
  std::int64_t iterations = 0, extrapolated_iterations = 0, preemptions = 0, kv_transfers = 0;
  std::int64_t swapped_tokens = 0, prefix_hit_tokens = 0, flips = 0;
  MeanEstimate mean_batch, busy_share, mean_kv_in_use, mfu, mean_workers, simulated_s, gpu_hours, cost, energy_kwh;
  int max_workers = 0;
  std::optional<ReportIntervals> intervals;
  std::vector<WorkerFigures> workers;
  std::vector<PolicyAutoscaler::Decision> decisions;  // of the autoscaler in the first replication; set by the caller
  double wall_s = 0;

  [[nodiscard]] bool meets_objectives() const { return attainment && percentile && attainment->mean * 100 >= *percentile; }
};

// REQUIRES: at least one result.
[[nodiscard]] ServingReport report_of(std::span<const ServingResult> results, std::uint64_t first_seed,
                                      const std::optional<double>& percentile, double wall_s);

// Adds intervals: the report's figures times what the first replication's change by, with one seed and other times. `from`: of
// the workers' times; it becomes kExtrapolated if more than a tenth of the iterations are.
void add_intervals(ServingReport& report, const ServingResult& expected, const ServingResult& shorter,
                   const ServingResult& longer, planner::Provenance from);

[[nodiscard]] nlohmann::ordered_json to_json(const ServingReport& report);

// Several services: their totals, and each one's own report under its name. REQUIRES: as many names as reports, at least one.
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const ServingReport> reports, std::span<const std::string> names);

}  // namespace windlass::sim
