// Tests of the clairvoyant's bound and its search.
#include "tests/reference/autoscalers/baseline_clairvoyant.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/reference/baseline_fixture.h"

namespace windlass::sim {
namespace {

planner::LinearCoefficients lines() {
  planner::LinearCoefficients c;
  c.k1 = 1e-4;
  c.c1 = 0.01;
  c.k2 = 1e-6;
  c.c2 = 1e-3;
  c.c3 = 0.02;
  c.kv_capacity_tokens = 10'000;
  return c;
}

// Given a single request of 100 + 3 tokens; expects its prompt, and two decode iterations with 101 and 102 tokens of context
// and a tenth of the constant each. Given a hundred requests; expects the most expensive one to be left out.
TEST(Clairvoyant, FloorIsTheWorkItself) {
  const workload::Request small{0, 1, 100, 3};
  const double small_s = 100 * 1e-4 + 203 * 1e-6 + 2 * (1e-3 + 0.02 / 10);
  EXPECT_NEAR(work_floor_s(std::vector{small}, lines(), 10, 1), small_s, 1e-12);
  std::vector<workload::Request> requests(99, small);
  requests.push_back({0, 1, 9000, 3});
  EXPECT_NEAR(work_floor_s(requests, lines(), 10, 0.99), 99 * small_s, 1e-9);
  EXPECT_GT(work_floor_s(requests, lines(), 10, 1), 99 * small_s + 0.9);
}

// Given one request in the middle of the second cell; expects its service time divided by the slots, in that cell and the next.
TEST(Clairvoyant, LoadIsTheTimeInSlots) {
  const planner::LinearModel model(lines());
  const double seconds = planner::worker_times(model, 2, {100, 300}).service_s;
  const std::vector<double> load = offered_workers(std::vector{workload::Request{15, 1, 100, 300}}, model, 2, 10);
  ASSERT_EQ(load.size(), static_cast<std::size_t>(std::floor((15 + seconds) / 10)) + 1);
  EXPECT_EQ(load[0], 0);
  EXPECT_NEAR(load[1], 5 / 20.0, 1e-12);
  double sum = 0;
  for (const double cell : load) sum += cell;
  EXPECT_NEAR(sum * 20, seconds, 1e-9);
}

// Given a load of 2.5, then 7.5, then 2.5 workers, and runs that attain if at most one cell in a hundred lacks a worker;
// expects a schedule that attains, costs no more than 3 and 8 workers, and cannot lose a worker anywhere except in one cell.
TEST(Clairvoyant, FindsACheapSchedule) {
  std::vector<double> load(100, 2.5);
  for (std::size_t cell = 40; cell < 60; ++cell) load[cell] = 7.5;
  ClairvoyantOptions options;
  options.cell_s = 10;
  options.improvement_runs = 2000;
  const auto run = [&](std::vector<ScheduleStep> steps) {
    ScheduleTrial trial;
    int enough = 0;
    std::size_t step = 0;
    for (std::size_t cell = 0; cell < load.size(); ++cell) {
      while (step + 1 < steps.size() && steps[step + 1].from_s <= static_cast<double>(cell) * 10) ++step;
      trial.gpu_hours += steps[step].workers;
      if (steps[step].workers >= load[cell]) ++enough;
    }
    trial.attainment = enough / 100.0;
    trial.steps = std::move(steps);
    return trial;
  };
  const ScheduleTrial best = cheapest_schedule(load, options, run);
  EXPECT_GE(best.attainment, 0.99);
  EXPECT_LE(best.gpu_hours, 80 * 3 + 20 * 8);
  EXPECT_GE(best.gpu_hours, 80 * 3 + 19 * 8 + 1);
}

// Given runs that never attain; expects the one with the best attainment.
TEST(Clairvoyant, ReturnsTheBestAttemptIfNoneAttains) {
  const auto run = [](std::vector<ScheduleStep> steps) {
    ScheduleTrial trial;
    trial.attainment = 0.5 + 0.01 * std::min(20, steps.front().workers);
    trial.gpu_hours = steps.front().workers;
    trial.steps = std::move(steps);
    return trial;
  };
  EXPECT_NEAR(cheapest_schedule(std::vector<double>(10, 4.0), {}, run).attainment, 0.7, 1e-12);
}

}  // namespace
}  // namespace windlass::sim
