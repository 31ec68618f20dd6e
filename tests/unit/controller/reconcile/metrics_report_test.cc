// The controller's metrics: what a report says about services, that no series of deleted services stay, and that
// docs/metrics.md and the bundles list the same metrics.
#include "controller/reconcile/metrics_report.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/paths.h"

namespace windlass::controller {
namespace {

using testing::HasSubstr;

class MetricsReportTest : public ::testing::Test {
 protected:
  MetricsReportTest() {
    service_.metadata.name_space = "default";
    service_.metadata.name = "chat";
    service_.metadata.uid = "u";
    service_.spec.slo.time_to_first_token_s = 0.5;
    object_.metadata.name = "h100";
    object_.spec.price_per_hour = 4;
    observation_.services = {&service_};
    observation_.classes["h100"] = &object_;
    observation_.capacity["h100"] = {2, 8, 1};
    observation_.workers["u"] = {};
    observation_.snapshot.now_s = 100;
    planner::Service seen;
    seen.id = {"default", "chat", "u"};
    seen.slo.ttft_s = 0.5;
    observation_.snapshot.services = {seen};
    planner::ServicePlan plan;
    plan.id = seen.id;
    plan_.services = {plan};
    statuses_.resize(1);
  }
  planner::Service& seen() { return observation_.snapshot.services[0]; }
  planner::ServicePlan& decided() { return plan_.services[0]; }
  void pool(int workers) {
    planner::Pool pool;
    pool.name = "h100-2";
    pool.spec.accelerator = "h100";
    pool.spec.tensor_parallel = 2;
    pool.workers = workers;
    decided().pools = {pool};
  }
  Worker& worker(const std::string& name, bool ready) {
    Worker one;
    one.name = one.uid = name;
    one.accelerator = "h100";
    one.gpus = 2;
    one.ready = ready;
    observation_.workers["u"].push_back(one);
    return observation_.workers["u"].back();
  }
  std::string published() {
    report_.publish(observation_, plan_, statuses_, state_, broken_, Instant{.wall_s = 1000, .monotonic_s = 50});
    return registry_.exposition();
  }
  // A series' value, by name and labels as in the exposition; NaN if absent.
  double value(const std::string& name, const metrics::Labels& labels = {{"namespace", "default"}, {"name", "chat"}}) {
    const auto page = metrics::parse_exposition(published());
    EXPECT_TRUE(page.ok());
    const auto found = page->find("windlass_controller_" + name, labels);
    return found.size() == 1 ? found[0]->value : std::numeric_limits<double>::quiet_NaN();
  }
  static metrics::Labels with(const std::string& label, const std::string& value) {
    return {{"namespace", "default"}, {"name", "chat"}, {label, value}};
  }

  metrics::Registry registry_;
  metrics::ControllerMetrics metrics_{registry_};
  MetricsReport report_{metrics_};
  api::ModelService service_;
  api::AcceleratorClass object_;
  Observation observation_;
  planner::Plan plan_;
  std::vector<api::ModelServiceStatus> statuses_;
  ControllerState state_;
  std::vector<BrokenObject> broken_;
};

// Given three workers wanted, two granted, one ready, one draining for 600 s; expects separate counts, GPUs and costs.
TEST_F(MetricsReportTest, WorkersWantedReadyAndDenied) {
  pool(2);
  decided().memory.desired = 3;
  plan_.denied = {{seen().id, "NoCapacity", "no GPU is free", "h100", 3, 2}};
  worker("a", true);
  worker("b", true).draining_since_s = 400;
  EXPECT_EQ(value("wanted_workers"), 3);
  EXPECT_EQ(value("desired_workers", with("role", "unified")), 2);
  EXPECT_EQ(value("desired_gpus"), 4);
  EXPECT_EQ(value("ready_workers"), 1);
  EXPECT_EQ(value("ready_gpus"), 2);
  EXPECT_EQ(value("denied_workers", with("reason", "NoCapacity")), 1);
  EXPECT_EQ(value("denied_gpus", with("reason", "NoCapacity")), 2);
  EXPECT_EQ(value("workers", with("state", "draining")), 1);
  EXPECT_EQ(value("cost_per_hour"), 16);
  EXPECT_EQ(value("desired_cost_per_hour"), 16);
  EXPECT_EQ(value("drain_age_seconds"), 600);
  EXPECT_EQ(value("allocatable_gpus", {{"accelerator", "h100"}}), 8);
  EXPECT_EQ(value("used_gpus", {{"accelerator", "h100"}, {"by", "windlass"}}), 4);
  EXPECT_EQ(value("used_gpus", {{"accelerator", "h100"}, {"by", "others"}}), 1);
}

// Given latencies of which only a limit is known, then known values; expects the limit's series to have a label that says so,
// and to be removed later.
TEST_F(MetricsReportTest, ALimitIsNotAValue) {
  seen().demand.ttft_s = planner::Reading{0.01, 99, Bound::kBelow};
  seen().demand.tpot_s = planner::Reading{10, 99, Bound::kAbove};
  EXPECT_EQ(value("time_to_first_token_seconds", with("bound", "below")), 0.01);
  EXPECT_EQ(value("time_per_output_token_seconds", with("bound", "above")), 10);
  seen().demand.ttft_s = planner::Reading{0.0017, 99};
  seen().demand.tpot_s = std::nullopt;
  EXPECT_EQ(value("time_to_first_token_seconds"), 0.0017);
  EXPECT_THAT(published(), Not(HasSubstr("bound=")));
}

// Given a quota that refuses two planned workers; expects them to be denied under the quota's name.
TEST_F(MetricsReportTest, AQuotasRefusalIsADenial) {
  pool(3);
  worker("a", true);
  seen().refused = planner::CreationRefusal{"QuotaExceeded", "exceeded quota", 200};
  EXPECT_EQ(value("denied_workers", with("reason", "QuotaExceeded")), 2);
  EXPECT_EQ(value("denied_gpus", with("reason", "QuotaExceeded")), 4);
}

// Given a fresh arrival rate, a queue that was read 60 s ago and no lengths; expects fresh, stale and missing signals, and no
// age for the missing one.
TEST_F(MetricsReportTest, FreshStaleAndMissingSignals) {
  seen().demand.arrivals_per_s = planner::Reading{2, 99};
  seen().demand.queued = planner::Reading{1, 40};
  const auto state = [&](const std::string& signal, const std::string& state) {
    auto labels = with("signal", signal);
    labels["state"] = state;
    return value("signal_state", labels);
  };
  EXPECT_EQ(state("arrivals", "fresh"), 1);
  EXPECT_EQ(state("queued", "stale"), 1);
  EXPECT_EQ(state("lengths", "missing"), 1);
  EXPECT_EQ(value("signal_age_seconds", with("signal", "arrivals")), 1);
  EXPECT_EQ(value("signal_age_seconds", with("signal", "queued")), 60);
  EXPECT_TRUE(std::isnan(value("signal_age_seconds", with("signal", "lengths"))));
  EXPECT_TRUE(std::isnan(state("workers", "missing")));  // none is ready
  EXPECT_EQ(value("arrivals_per_second"), 2);
  EXPECT_EQ(value("backlog_requests"), 1);
  seen().demand.arrivals_per_s->value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(state("arrivals", "stale"), 1);
  EXPECT_TRUE(std::isnan(value("arrivals_per_second")));
}

// Given a reason that appears in three plans, disappears and returns, and desired workers that rise and fall; expects each to
// be counted when it starts.
TEST_F(MetricsReportTest, DecisionsCountWhenTheyBegin) {
  decided().reasons = {{"Holding", "", {}}};
  for (int i = 0; i < 3; ++i) report_.count(plan_);
  EXPECT_EQ(value("decisions_total", with("reason", "Holding")), 1);
  decided().reasons.clear();
  pool(2);
  report_.count(plan_);
  decided().reasons = {{"Holding", "", {}}};
  pool(1);
  report_.count(plan_);
  EXPECT_EQ(value("decisions_total", with("reason", "Holding")), 2);
  EXPECT_EQ(value("scale_changes_total", with("direction", "up")), 1);
  EXPECT_EQ(value("scale_changes_total", with("direction", "down")), 1);
}

// Given a condition that changes its reason, a service that is deleted and a leader that loses the lead; expects no old series
// to stay.
TEST_F(MetricsReportTest, RemovesOldSeries) {
  pool(1);
  api::Condition condition;
  condition.type = "Ready";
  condition.status = api::ConditionStatus::kTrue;
  condition.reason = "WorkersReady";
  statuses_[0].conditions = {condition};
  EXPECT_THAT(published(), HasSubstr("reason=\"WorkersReady\""));
  statuses_[0].conditions[0].reason = "Scaling";
  EXPECT_THAT(published(), Not(HasSubstr("reason=\"WorkersReady\"")));
  EXPECT_THAT(published(), HasSubstr("name=\"chat\""));
  report_.clear();
  EXPECT_THAT(registry_.exposition(), Not(HasSubstr("name=\"chat\"")));
  EXPECT_THAT(published(), HasSubstr("name=\"chat\""));
  observation_.services.clear();
  observation_.snapshot.services.clear();
  plan_.services.clear();
  EXPECT_THAT(published(), Not(HasSubstr("name=\"chat\"")));
}

// Given counted decisions and changes of a service; expects their series to end with it and with the lead, and a later service
// of the same name to start at its own values.
TEST_F(MetricsReportTest, CountersEndWithTheirService) {
  const auto counted = [&] { return registry_.exposition(); };
  decided().reasons = {{"Holding", "", {}}};
  pool(1);
  report_.count(plan_);
  pool(2);
  report_.count(plan_);
  EXPECT_THAT(counted(), HasSubstr("name=\"chat\""));
  decided().id.uid = "another";
  report_.count(plan_);
  EXPECT_EQ(value("decisions_total", with("reason", "Holding")), 1);
  EXPECT_TRUE(std::isnan(value("scale_changes_total", with("direction", "up"))));
  const auto services = std::exchange(plan_.services, {});
  report_.count(plan_);
  report_.clear();
  EXPECT_THAT(counted(), Not(HasSubstr("name=\"chat\"")));
  plan_.services = services;
  report_.count(plan_);
  EXPECT_THAT(counted(), HasSubstr("name=\"chat\""));
  report_.clear();
  EXPECT_THAT(counted(), Not(HasSubstr("name=\"chat\"")));
}

// Given docs/metrics.md; expects it to list every metric of the controller's bundle, and no others.
TEST_F(MetricsReportTest, TheDocumentNamesEveryMetric) {
  std::ifstream file(source_path("/docs/metrics.md"));
  std::ostringstream text;
  text << file.rdbuf();
  const std::string doc = text.str();
  std::ifstream source(source_path("/metrics/controller_metrics.cc"));
  std::ostringstream code;
  code << source.rdbuf();
  const auto names_in = [](const std::string& where) {
    std::set<std::string> names;
    const std::string prefix = "windlass_controller_";
    for (std::size_t at = where.find(prefix); at != std::string::npos; at = where.find(prefix, at + 1)) {
      const std::size_t end = where.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789", at);
      names.insert(where.substr(at, end - at));
    }
    return names;
  };
  EXPECT_GT(names_in(code.str()).size(), 40U);
  EXPECT_EQ(names_in(doc), names_in(code.str()));
}

}  // namespace
}  // namespace windlass::controller
