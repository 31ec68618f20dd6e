// Tests the explanations of `windlass explain`, of plans made by the planner.
#include "controller/cli/explain/explain_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/policy/make_plan.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::cli {
namespace {

using planner::testing::chat_service;
using planner::testing::h100;
using planner::testing::ready_worker;
using planner::testing::with_gpus;
using testing::HasSubstr;
using testing::Not;

planner::Snapshot busy(double rate_per_s, int workers, int gpus) {
  planner::Snapshot snapshot;
  snapshot.now_s = 10'000;
  snapshot.accelerators = {with_gpus(h100(), gpus)};
  planner::Service service = chat_service();
  service.last_desired = workers;
  service.demand.arrivals_per_s = planner::Reading{rate_per_s, snapshot.now_s - 2};
  service.demand.queued = planner::Reading{0, snapshot.now_s - 2};
  for (int slot = 0; slot < workers; ++slot) {
    service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, snapshot.now_s));
    service.workers.back().address = "10.0.0.1:8000";
  }
  snapshot.services = {service};
  return snapshot;
}

// Replaces each run of white space with one space, since lines may break anywhere.
std::string flat(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n';
    if (space && (out.empty() || out.back() == ' ')) continue;
    out += space ? ' ' : c;
  }
  return out;
}

std::string explain(const planner::Snapshot& snapshot) { return flat(explanation(snapshot, planner::make_plan(snapshot), 0)); }

// Given: a service under load, with spare GPUs.
// Expected: every section; readings with their age; the rates at which the answer changes; conditions.
TEST(ExplainText, PrintsEverySection) {
  const std::string text = explain(busy(55, 4, 64));
  for (const char* section :
       {"What was seen", "What was predicted", "What was decided", "Why", "What would change it", "Conditions"}) {
    EXPECT_THAT(text, HasSubstr(section));
  }
  EXPECT_THAT(text, HasSubstr("arrivals: 55.00 requests/s (2.00s ago)"));
  EXPECT_THAT(text, HasSubstr("TTFT: unknown"));
  EXPECT_THAT(text, HasSubstr("h100-1-0 Ready"));
  EXPECT_THAT(text, HasSubstr("10.0.0.1:8000"));
  EXPECT_THAT(text, HasSubstr("requests/s or more: "));
  EXPECT_THAT(text, HasSubstr("requests/s or less for"));
  EXPECT_THAT(text, HasSubstr("Feasible: True"));
}

// Given: a service that wants more GPUs than the class has, one worker out of memory, and creation refused by a quota.
// Expected: what was denied, the worker's trouble and the quota's message.
TEST(ExplainText, NamesDeniedWorkersAndFailures) {
  planner::Snapshot snapshot = busy(200, 4, 5);
  planner::Worker& worker = snapshot.services[0].workers[3];
  worker.state = planner::WorkerState::kFailed;
  worker.trouble = planner::WorkerTrouble::kOutOfMemory;
  worker.trouble_message = "killed at 80Gi";
  snapshot.services[0].refused = planner::CreationRefusal{"QuotaExceeded", "gpus: used 4, limited 4", snapshot.now_s + 10};
  const std::string text = explain(snapshot);
  EXPECT_THAT(text, HasSubstr("h100-1-3: OutOfMemory: killed at 80Gi"));
  EXPECT_THAT(text, HasSubstr("refused by the cluster (QuotaExceeded): gpus: used 4, limited 4"));
  EXPECT_THAT(text, HasSubstr("denied ("));
}

// Given: an objective that no accelerator can meet.
// Expected: the text says so, and gives no rate at which the plan would change.
TEST(ExplainText, ReportsAnInfeasibleObjective) {
  planner::Snapshot snapshot = busy(10, 1, 8);
  snapshot.services[0].slo.tpot_s = 1e-5;
  snapshot.services[0].workers.clear();
  const std::string text = explain(snapshot);
  EXPECT_THAT(text, HasSubstr("Feasible: False"));
  EXPECT_THAT(text, HasSubstr("unknown: needs"));
  EXPECT_THAT(text, Not(HasSubstr("requests/s or more:")));
}

// Given: a decision with a forecast, a measured start, measured iterations and rejected configurations.
// Expected: each with its figures.
TEST(ExplainText, PrintsForecastStartsMeasuredTimesAndAlternatives) {
  planner::Snapshot snapshot = busy(55, 4, 64);
  snapshot.services[0].starts = planner::StartTimes{95, 12};
  planner::WorkerEstimate measured;
  measured.accelerator = "h100";
  measured.gpus_per_worker = 1;
  measured.estimate.samples = 500;
  measured.estimate.noise_variance = 0.07 * 0.07;
  measured.estimate.largest_batch = 12;
  snapshot.services[0].estimates = {measured};
  planner::Plan plan = planner::make_plan(snapshot);
  plan.services[0].forecast = planner::DemandForecast{"HoltWinters", 95, 61, 0.12, 40};
  plan.services[0].considered = {{{"h100", 1}, 4, 16, 0.03, 0.2, ""}, {{"l4", 1}, 0, 0, 0.4, 0, "TPOT 400ms is above 50ms"}};
  const std::string text = flat(explanation(snapshot, plan, 0));
  EXPECT_THAT(text, HasSubstr("within 95.0s (starts measured: 12)"));
  EXPECT_THAT(text, HasSubstr("iterations of 1 x h100: 500 observations, batches up to 12; typical error 7.0% per iteration"));
  EXPECT_THAT(text, HasSubstr("61.00 requests/s, forecast by HoltWinters with a mean error of 12.0% over 40"));
  EXPECT_THAT(text, HasSubstr("1 x h100"));
  EXPECT_THAT(text, HasSubstr("taken"));
  EXPECT_THAT(text, HasSubstr("TPOT 400ms is above 50ms"));
}

// Given: an object with a status, and one that no controller has processed.
// Expected: its status in words; or that no controller has processed it.
TEST(ExplainText, ExplainsTheObjectsStatus) {
  api::ModelService service;
  service.metadata.name = "chat";
  service.metadata.name_space = "llm";
  service.metadata.generation = 4;
  service.spec.slo.time_to_first_token_s = 1;
  EXPECT_THAT(explanation(service), HasSubstr("No controller has processed it yet"));
  service.status.observed_generation = 3;
  service.status.load.requests_per_s = 12.5;
  service.status.workers = {3, 4, 2, 1, 0};
  service.status.plan.pools = {{"h100-2", api::PoolRole::kUnified, "h100", 2, 4, ""}};
  service.status.plan.reasons = {{"ScaleUp", "from 3 to 4 workers", {{"from", "3"}}}};
  const std::string text = flat(explanation(service));
  EXPECT_THAT(text, HasSubstr("for generation 3, the spec is at 4"));
  EXPECT_THAT(text, HasSubstr("arrivals 12.50 requests/s"));
  EXPECT_THAT(text, HasSubstr("4 desired, 2 ready, 1 starting"));
  EXPECT_THAT(text, HasSubstr("pool h100-2: 4 workers of 2 x h100"));
  EXPECT_THAT(text, HasSubstr("ScaleUp: from 3 to 4 workers"));
}

}  // namespace
}  // namespace windlass::cli
