// The clairvoyant: the fewest worker-hours that would have sufficed, knowing every arrival and every length. Two figures.
//
// work_floor_s() is a lower bound for any schedule: the worker-seconds that the iterations themselves take. Every iteration of
// the linear model has a constant cost and a cost per sequence. The latter belongs to the requests. Of the constant cost, each
// sequence in a batch of at most B gets at least 1 / B. One in a hundred requests need not attain: the most expensive are left
// out. The bound is loose: it ignores whole workers, starts and bursts.
//
// cheapest_schedule() is a schedule that was run and attained: no bound, but close to the best one. The search:
//
//   1. the load: every request occupies a slot of a worker from its arrival for its own service time. The sum, divided by a
//   worker's
//      slots, averaged over a time (from less than requests may wait to several minutes), times a factor, capped, is the number
//      of ready workers. For each averaging time and cap: the smallest factor that attains; the cheapest of all wins.
//   2. then blocks of time, long ones first, lose a worker as long as the whole run still attains.
//
// Workers are started early enough to be ready in time (baseline_schedule.h), and their starts are paid for. Pure; the caller
// runs the simulations.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "planner/perf/linear_model.h"
#include "planner/sizing/worker_config.h"
#include "planner/workload/request_source.h"
#include "tests/reference/autoscalers/baseline_schedule.h"

namespace windlass::sim {

// `share` of the requests must attain. REQUIRES: max_sequences >= 1.
[[nodiscard]] double work_floor_s(std::span<const workload::Request> requests, const planner::LinearCoefficients& model,
                                  int max_sequences, double share);

struct ScheduleTrial {
  std::vector<ScheduleStep> steps;
  double attainment = 0;
  double gpu_hours = 0;
};

struct ClairvoyantOptions {
  double attainment = 0.99;
  double cell_s = 10;  // the number of workers changes at multiples of it
  std::vector<double> averages_s = {10, 30, 60, 120, 300};
  std::vector<double> caps = {1, 0.95, 0.9, 0.8};  // relative to the highest load
  int improvement_runs = 400;
  int max_workers = 1 << 20;
};

// Occupied workers over time, one value per cell: each request adds its share of the slots while it is served at a full batch.
[[nodiscard]] std::vector<double> offered_workers(std::span<const workload::Request> requests,
                                                  const planner::LatencyModel& model, int slots, double cell_s);

// The cheapest schedule found that attains; if none does, the one with the best attainment. REQUIRES: requests; run() fills in
// the whole trial.
[[nodiscard]] ScheduleTrial cheapest_schedule(const std::vector<double>& offered, const ClairvoyantOptions& options,
                                              const std::function<ScheduleTrial(std::vector<ScheduleStep>)>& run);

}  // namespace windlass::sim
