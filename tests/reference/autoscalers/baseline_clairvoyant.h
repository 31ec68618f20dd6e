// The clairvoyant: how few worker hours would have done, for someone who knew every arrival and every length. Two figures.
//
// work_floor_s() is a bound that no schedule can pass, whatever it knows: the worker-seconds that the iterations themselves
// take. Every iteration of the linear model costs a constant and a part for each of its sequences. The parts belong to their
// requests; of the constant at least 1 / B belongs to each sequence of a batch of at most B. One in a hundred requests need not
// attain: the dearest are left out. It is loose: it says nothing of whole workers, starts, or of bursts.
//
// cheapest_schedule() is a schedule that was run, and attained: no bound, but near the best one. What is searched:
//
//   1. the load: every request occupies a slot of a worker from its arrival for its own service time; summed, over the slots
//      of a worker, averaged over a time (shorter than requests may wait, to several minutes), times a factor, at most a cap:
//      so many workers are ready. For each averaging time and cap the smallest factor that attains; the cheapest of all.
//   2. from there on, blocks of time, long ones first, lose a worker as long as the whole run attains still.
//
// Workers are started so much earlier that they are ready in time (baseline_schedule.h), and their starts are paid for.
// Pure; runs are the caller's.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "planner/perf/linear_model.h"
#include "planner/sizing/worker_config.h"
#include "planner/workload/request_source.h"
#include "tests/reference/autoscalers/baseline_schedule.h"

namespace windlass::sim {

// `share` of the requests must attain. REQUIRES: most_sequences >= 1.
[[nodiscard]] double work_floor_s(std::span<const workload::Request> requests, const planner::LinearCoefficients& model,
                                  int most_sequences, double share);

struct ScheduleTrial {
  std::vector<ScheduleStep> steps;
  double attainment = 0;
  double gpu_hours = 0;
};

struct ClairvoyantOptions {
  double attainment = 0.99;
  double cell_s = 10;  // workers change at multiples of it
  std::vector<double> averages_s = {10, 30, 60, 120, 300};
  std::vector<double> caps = {1, 0.95, 0.9, 0.8};  // of the load's highest
  int improvement_runs = 400;
  int most_workers = 1 << 20;
};

// Occupied workers over time, a value a cell: of each request the slots' share that it takes while it is served at a full
// batch.
[[nodiscard]] std::vector<double> offered_workers(std::span<const workload::Request> requests,
                                                  const planner::LatencyModel& model, int slots, double cell_s);

// The cheapest schedule found that attains; where none does, the one that attained most. REQUIRES: requests; run() fills in all
// of the trial.
[[nodiscard]] ScheduleTrial cheapest_schedule(const std::vector<double>& offered, const ClairvoyantOptions& options,
                                              const std::function<ScheduleTrial(std::vector<ScheduleStep>)>& run);

}  // namespace windlass::sim
