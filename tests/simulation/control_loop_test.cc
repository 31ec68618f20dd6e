// Scripted scenarios of the control loop on one service: a burst, steady load, missing signals, edits. vopr_test.cc combines
// everything at random; here one thing happens and the outcome is known. Every violation names its seed.
#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/simulation/sim_world.h"

namespace windlass::simulation {
namespace {

// One service on one class of GPUs, one controller, one gateway, no faults.
Scenario one_service(std::uint64_t seed, int nodes = 2) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.controllers = 1;
  scenario.gateways = 1;
  scenario.nodes = {{"h100", nodes, 4}};
  scenario.classes = {accelerator_class("h100", "80Gi", "989T", "3350G", "3.69")};
  ServiceScenario service;
  service.name = "chat";
  service.spec = service_spec("chat", {{"scaling", {{"behavior", {{"scaleDown", {{"stabilizationWindow", "1m"}}}}}}}});
  scenario.services = {service};
  scenario.load_max_s = 8;
  return scenario;
}

class ControlLoop : public testing::Test {
 protected:
  void begin(Scenario scenario) {
    world = std::make_unique<SimWorld>(std::move(scenario));
    run(30, 0);
    worker_rate = world->worker_rate("chat");
    ASSERT_GT(worker_rate, 0);
  }
  void run(double seconds, double rate_per_s) {
    world->set_load("chat", rate_per_s);
    world->run(seconds);
  }
  void TearDown() override {
    std::string all;
    for (const Violation& one : world->journal().violations())
      all += fmt::format("{:.2f} s: {}: {}\n", one.at_s, one.check, one.what);
    EXPECT_EQ(all, "");
  }
  nlohmann::json condition(const std::string& type) {
    for (const nlohmann::json& one : world->status("chat").value("conditions", nlohmann::json::array())) {
      if (one["type"] == type) return one;
    }
    return {};
  }
  int changes() const {
    return world->invariants().changes_of_desired(
        (*world->api().peek(kube::resources::kModelServices, kNamespace, "chat"))["metadata"]["uid"]);
  }

  // Every request was served, was rejected by a full queue, waited too long, or ended with its gateway. None is missing and
  // none failed at a worker.
  static testing::AssertionResult all_ended_by_load(const Tally& tally) {
    if (tally.with(200) + tally.with(429) + tally.with(503) + tally.with(0) == tally.arrived)
      return testing::AssertionSuccess();
    auto failure = testing::AssertionFailure() << tally.arrived << " arrived";
    for (const auto& [code, count] : tally.ended) failure << ", " << count << " ended with " << code;
    return failure;
  }

  std::unique_ptr<SimWorld> world;
  double worker_rate = 0;
};

// Given no faults; load for one worker, then for almost three, then for one again; expects workers to be added immediately and
// removed after the window, every request to be served, and a correct status.
TEST_F(ControlLoop, FollowsABurstAndComesBack) {
  begin(one_service(1));
  run(60, 0.4 * worker_rate);
  EXPECT_EQ(world->active_workers("chat"), 1);
  run(60, 2.6 * worker_rate);
  EXPECT_GE(world->active_workers("chat"), 3);
  EXPECT_LE(world->active_workers("chat"), 6);
  run(300, 0.4 * worker_rate);
  EXPECT_LE(world->active_workers("chat"), 2);
  run(240, 0);
  EXPECT_EQ(world->active_workers("chat"), 1);
  const Tally tally = world->tally("chat");
  EXPECT_GT(tally.arrived, 100);
  EXPECT_TRUE(all_ended_by_load(tally));
  EXPECT_GE(tally.with(200), tally.arrived * 99 / 100);
  const nlohmann::json status = world->status("chat");
  EXPECT_EQ(status["workers"]["desired"], 1);
  EXPECT_EQ(status["workers"]["ready"], 1);
}

// Given a steady Poisson load for half an hour; expects the number of workers not to follow the noise.
TEST_F(ControlLoop, DoesNotOscillateUnderSteadyLoad) {
  begin(one_service(2));
  run(300, 1.6 * worker_rate);
  const int before = changes();
  run(1800, 1.6 * worker_rate);
  EXPECT_LE(changes() - before, 4);
}

// Given a loaded service whose gateway can no longer be scraped; expects nothing to be scaled down in that time, and a
// condition that says why.
TEST_F(ControlLoop, HoldsWhileSignalsAreMissing) {
  begin(one_service(3));
  run(180, 2.6 * worker_rate);
  const int before = world->active_workers("chat");
  ASSERT_GE(before, 3);
  world->gateways().front()->page_fault = PageFault::kUnreadable;
  run(600, 0);
  EXPECT_EQ(world->active_workers("chat"), before);
  EXPECT_EQ(condition("MetricsFresh")["status"], "False");
  world->gateways().front()->page_fault = PageFault::kNone;
  run(300, 0);
  EXPECT_EQ(world->active_workers("chat"), 1);
}

// Given a loaded service whose gateway reports NaN, and one whose metrics page has lost its demand series; expects neither to
// count as no demand: nothing is scaled down, and the condition says why.
TEST_F(ControlLoop, HoldsOnNotANumberAndOnLostSeries) {
  begin(one_service(6));
  run(90, 2.6 * worker_rate);
  const int before = world->active_workers("chat");
  ASSERT_GE(before, 3);
  for (const PageFault fault : {PageFault::kNotANumber, PageFault::kSeriesMissing}) {
    world->gateways().front()->page_fault = fault;
    run(240, 0);
    EXPECT_EQ(world->active_workers("chat"), before) << static_cast<int>(fault);
    EXPECT_EQ(condition("MetricsFresh")["status"], "False") << static_cast<int>(fault);
  }
}

// Given four workers that fill the cluster, and an edit (another image) that makes all of them outdated; expects them to be
// replaced one by one: never more than one fewer ready than planned, never more workers than allowed, no request lost, and in
// the end all are new.
TEST_F(ControlLoop, ReplacesOutdatedWorkersOneByOne) {
  begin(one_service(4, 1));
  const double load = 2.6 * worker_rate;
  run(120, load);
  ASSERT_EQ(world->active_workers("chat"), 4);
  ASSERT_EQ(world->ready_workers("chat"), 4);
  std::set<std::string> old_uids;
  for (const nlohmann::json& pod : world->api().pods(kNamespace)) old_uids.insert(pod["metadata"]["uid"]);
  world->api().edit(kube::resources::kModelServices, kNamespace, "chat",
                    [](nlohmann::json& object) { object["spec"]["engine"]["image"] = "windlass-worker:next"; });
  int least_ready = 4;
  std::size_t most = 0;
  const auto all_new = [&] {
    const auto pods = world->api().pods(kNamespace);
    return world->ready_workers("chat") == 4 && std::none_of(pods.begin(), pods.end(), [&](const nlohmann::json& pod) {
             return old_uids.contains(pod["metadata"]["uid"]);
           });
  };
  for (int i = 0; i < 1200 && !all_new(); ++i) {
    run(1, load);
    least_ready = std::min(least_ready, world->ready_workers("chat"));
    most = std::max(most, world->api().pods(kNamespace).size());
  }
  EXPECT_TRUE(all_new());
  EXPECT_GE(least_ready, 3);
  EXPECT_LE(most, 5U);
  run(60, 0);
  const Tally tally = world->tally("chat");
  EXPECT_TRUE(all_ended_by_load(tally));
  EXPECT_EQ(world->cluster().calls_broken(), 0);
}

// Given several workers, and an edit that no pod can be created from; expects nothing to be drained, and a condition that says
// why.
TEST_F(ControlLoop, AnImpossibleEditDrainsNothing) {
  begin(one_service(5));
  const double load = 2 * worker_rate;
  run(120, load);
  const int before = world->ready_workers("chat");
  ASSERT_GE(before, 2);
  world->api().edit(kube::resources::kModelServices, kNamespace, "chat",
                    [](nlohmann::json& object) { object["spec"]["model"]["uri"] = "hf://some/model"; });
  run(120, load);
  EXPECT_GE(world->ready_workers("chat"), before);
  EXPECT_EQ(condition("AbleToScale")["reason"], "CreateFailed");
}

// Given two gateways under load, one of which is killed; expects the other to get its slots back and to serve all later
// requests; only the dead gateway's open requests are lost.
TEST_F(ControlLoop, TheOtherGatewayTakesOver) {
  Scenario scenario = one_service(7);
  scenario.gateways = 2;
  begin(std::move(scenario));
  run(90, 1.5 * worker_rate);
  const long held = static_cast<long>(world->gateways().front()->open_requests());
  world->gateways().front()->crash();
  run(120, 1.5 * worker_rate);
  run(60, 0);
  const Tally tally = world->tally("chat");
  EXPECT_LE(tally.with(0), held);
  EXPECT_TRUE(all_ended_by_load(tally));
  EXPECT_GE(tally.with(200) + tally.with(0), tally.arrived * 99 / 100);
}

}  // namespace
}  // namespace windlass::simulation
