// Tests the table of `windlass plan`.
#include "controller/cli/console/plan_text.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Case {
  planner::Snapshot snapshot;
  planner::Plan plan;
};

Case two_workers() {
  Case out;
  planner::Service service;
  service.id = {"default", "tiny", "uid"};
  service.served_name = "tiny";
  service.slo = {2, 0.1, 95, 60};
  service.demand.arrivals_per_s = planner::Reading{4, 98};
  service.workers.resize(1);
  service.workers[0].name = "tiny-cpu-1-0";
  service.workers[0].state = planner::WorkerState::kReady;
  service.workers[0].address = "127.0.0.1:5000";
  out.snapshot.now_s = 100;
  out.snapshot.services = {service};
  planner::ServicePlan planned;
  planned.id = service.id;
  planner::Pool pool;
  pool.name = "cpu-1";
  pool.spec.accelerator = "local-cpu";
  pool.spec.tensor_parallel = 1;
  pool.workers = 2;
  pool.each.max_concurrency = 4;
  pool.each.slots = 3;
  pool.each.requests_per_s = 1.5;
  planned.pools = {pool};
  planned.predicted = {0.8, 0.05, 3, 0.75, 2.5, 2, {0.6, 0.04, 2.5}, {1.2, 0.06, 3.5}, planner::Provenance::kMeasured};
  planned.reasons = {{"DemandGrew", "4 requests a second need two workers", {{"arrivals", "4"}, {"perWorker", "1.5"}}}};
  planned.feasible = {planner::Truth::kTrue, "Fits", ""};
  planned.slo_met = {planner::Truth::kFalse, "BelowObjective", "90% of 95%"};
  out.plan.services = {planned};
  out.plan.denied = {{service.id, "GPULimit", "maxGPUs is 2", "local-cpu", 3, 2}};
  return out;
}

// Given a plan of two workers; expects its pool in the table, and below it predictions, reasons, and what was denied.
TEST(PlanText, TablePrintsPoolsPredictionsAndReasons) {
  const Case c = two_workers();
  const std::string text = plan_table(c.snapshot, c.plan);
  EXPECT_THAT(text, HasSubstr("default/tiny  cpu-1  unified  local-cpu    1           2        3/4        1.50"));
  EXPECT_THAT(text, HasSubstr("objective: TTFT 2.00s, TPOT 100ms for 95% of the requests"));
  EXPECT_THAT(text,
              HasSubstr("predicted: TTFT 800ms (600ms to 1.20s), TPOT 50.0ms (40.0ms to 60.0ms), up to 3.00 (2.50 to 3.50)\n"
                        "  requests/s, 75.0% used, 2 x local-cpu, 2.50 per hour; measured on such workers"));
  EXPECT_THAT(text, HasSubstr("DemandGrew: 4 requests a second need two workers"));
  EXPECT_THAT(text, HasSubstr("denied (GPULimit): asked for 3 workers, granted 2 of local-cpu: maxGPUs is 2"));
  EXPECT_THAT(text, Not(HasSubstr("Feasible")));
}

// Given a demand beyond the workers' capacity; expects "unbounded", since a dash would mean "unknown".
TEST(PlanText, DemandBeyondTheWorkersHasUnboundedTtft) {
  Case c = two_workers();
  constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  planner::Predicted& predicted = c.plan.services[0].predicted;
  predicted.ttft_s = predicted.low.ttft_s = predicted.high.ttft_s = kUnbounded;
  EXPECT_THAT(plan_table(c.snapshot, c.plan), HasSubstr("predicted: TTFT unbounded, TPOT 50.0ms"));
}

// Given a service that can't be placed; expects the reason in place of a pool.
TEST(PlanText, TableSaysWhyThereAreNoWorkers) {
  Case c = two_workers();
  c.plan.services[0].pools.clear();
  c.plan.services[0].feasible = {planner::Truth::kFalse, "ModelTooLarge", "needs 140.0GiB, the class has 80.0GiB"};
  const std::string text = plan_table(c.snapshot, c.plan);
  EXPECT_THAT(text, HasSubstr("No workers."));
  EXPECT_THAT(text, HasSubstr("Feasible: False (ModelTooLarge): needs 140.0GiB"));
}

}  // namespace
}  // namespace windlass::cli
