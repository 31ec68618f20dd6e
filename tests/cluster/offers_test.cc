// The controller runs what the strategies find (docs/configuration.md), on a real API server: it moves from the closed forms'
// workers to the offer's under load, runs what `windlass plan` shows for the same objects, and a new leader goes on with it.
//
// The tiny model's workers are thousands of times faster than their AcceleratorClasses say, and what is measured must not tell
// the controller. So workers do not measure themselves, answers have one or two tokens, and requests are so rare that no worker
// has five iterations in one window of measurement (planner/perf/iteration_windows.h). Whole workers answer with one token,
// because others are measured by the time between tokens, too.
#include <algorithm>
#include <cctype>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "tests/cluster/controller_fixture.h"
#include "tests/cluster/harness/network.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using nlohmann::json;

// Tokens of the prompts that Load sends.
constexpr int kPromptTokens = 28;

struct Class {
  std::string name;
  std::string speed;  // bytes of memory and FLOP per second
  std::string price;
};

// Workers by pool: name and role.
using Pools = std::map<std::pair<std::string, std::string>, int>;

Pools pools_of(const json& list) {
  Pools pools;
  for (const json& pool : list) {
    std::string role = pool.value("role", "");
    if (!role.empty()) role[0] = static_cast<char>(std::tolower(role[0]));  // as in the pods' labels
    if (pool.value("workers", 0) > 0) pools[{pool.value("name", ""), role}] += pool.value("workers", 0);
  }
  return pools;
}

std::string text_of(const Pools& pools) {
  std::string text;
  for (const auto& [pool, workers] : pools) text += fmt::format("{} {} {}; ", workers, pool.first, pool.second);
  return text;
}

class OffersTest : public ControllerTest {
 protected:
  void SetUp() override {
    ControllerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    leader_ = start_controller("controller-a");
    standby_ = start_controller("controller-b");
    if (HasFailure()) return;
    gateway_ = start_gateway({&leader_, &standby_});
    ASSERT_TRUE(eventually(kPatience, [&] { return leader_.leads() || standby_.leads(); })) << "no controller leads";
    if (standby_.leads()) std::swap(leader_, standby_);
  }

  void TearDown() override {
    load_.reset();
    ControllerTest::TearDown();
    if (fast_node_) {
      (void)plane().kubectl({"delete", "acceleratorclass/test-fast", "node/node-fast"});
      fast_node_.reset();
    }
  }

  // A second node, for AcceleratorClass test-fast.
  void start_fast_node() {
    fast_node_ = start_program(
        "kubelet-fast",
        {build_path("/windlass-test-kubelet"), "--kubeconfig=" + plane().kubeconfig(), "--node=node-fast",
         "--folder=" + plane().folder() + "/kubelet-fast", fmt::format("--allocatable={}={}", kGpuResource, kGpusOfNode),
         "--label=windlass.dev/accelerator=test-fast", fmt::format("--image={}={}/windlass-worker", kWorkerImage, build_path()),
         fmt::format("--image={}=/bin/sh", kShellImage), fmt::format("--network={}", claim_networks())});
    ASSERT_TRUE(eventually(kPatience, [&] {
      const json node = plane().get("/api/v1/nodes/node-fast").json();
      return condition_of(node, "Ready") == "True" && !node["spec"].contains("taints");
    })) << tail_of_file(log_of("kubelet-fast"), 20);
  }

  // The classes and "chat", which assumes the load that start_load() sends.
  void apply_all(const std::vector<Class>& classes, json object) {
    objects_.clear();
    object["spec"]["accelerators"] = json::array();
    for (const Class& one : classes) {
      object["spec"]["accelerators"].push_back({{"class", one.name}});
      objects_.push_back(accelerator_class(one.name, one.speed, one.price));
    }
    objects_.push_back(std::move(object));
    for (const json& one : objects_) apply_object(one);
  }

  // What `windlass plan` shows for the applied objects.
  [[nodiscard]] Pools preview() const {
    const std::string path = plane().folder() + "/" + name_space() + "-plan.yaml";
    std::string text;
    for (const json& one : objects_) text += "---\n" + one.dump() + "\n";
    write_text_file(path, text);
    const CommandResult shown = run_command({build_path("/windlass"), "plan", "-f", path, "-o", "json"});
    EXPECT_TRUE(shown.ok()) << shown.describe();
    return shown.ok() ? pools_of(json::parse(shown.out)["services"].at(0)["pools"]) : Pools();
  }

  [[nodiscard]] Pools live() const {
    Pools pools;
    for (const json& pod : workers()) {
      const json& labels = pod["metadata"]["labels"];
      if (condition_of(pod, "Ready") == "True")
        ++pools[{labels.value("windlass.dev/pool", ""), labels.value("windlass.dev/role", "")}];
    }
    return pools;
  }

  // Requests at a steady rate.
  void start_load(double requests_per_s, int tokens) {
    LoadOptions options;
    options.url = gateway_;
    options.model = served_name();
    options.threads = 1;
    options.pause_s = 1 / requests_per_s;
    options.max_tokens = tokens;
    load_ = std::make_unique<Load>(options);
  }

  // Waits until the workers are those of the preview, and `kubectl get ms` says why.
  void expect_preview(const std::string& reason) {
    const Pools wanted = preview();
    ASSERT_FALSE(wanted.empty());
    const auto decided = [&](const json& plan) {
      return plan.contains("strategies") && plan.contains("offer") && has_reason(plan, reason);
    };
    ASSERT_TRUE(eventually(kPatience, [&] { return decided(shown_plan()); })) << describe_state();
    ASSERT_TRUE(eventually(
        kPatience,
        [&] { return live() == wanted && workers().size() == ready_workers() && pools_of(shown_plan()["pools"]) == wanted; }))
        << fmt::format("wanted: {}, live: {}, ", text_of(wanted), text_of(live())) << describe_state()
        << load_->report().describe();
    const json plan = shown_plan();
    ASSERT_TRUE(decided(plan)) << plan.dump(1);
    EXPECT_TRUE(std::any_of(plan["strategies"].begin(), plan["strategies"].end(), [](const json& one) {
      return one["strategy"] == "auto";
    })) << plan.dump(1);
    for (const json& one : plan["strategies"]) EXPECT_NE(one.value("outcome", ""), "") << one.dump();
  }

  // Kills the leader; expects the other one to take over, and every worker to stay while the new leader searches and until
  // `answers` more requests were answered. They should take longer than the half minute in which nothing may be scaled down
  // (kLeastHistoryS).
  void expect_takeover_changes_nothing(int answers) {
    const std::map<std::string, std::string> before = worker_uids();
    if (standby_.leads()) std::swap(leader_, standby_);
    leader_.process->signal(SIGKILL);
    ASSERT_TRUE(eventually(kPatience, [&] { return standby_.leads(); })) << tail_of_file(log_of(standby_.name), 20);
    std::string changed;
    const auto stays = [&] {
      const std::map<std::string, std::string> now = worker_uids();
      if (now != before && changed.empty()) changed = describe_state();
      return changed.empty();
    };
    const auto searched = [&] { return read_text_file(log_of(standby_.name)).find(" offers ") != std::string::npos; };
    EXPECT_TRUE(eventually(kPatience, [&] { return !stays() || searched(); })) << tail_of_file(log_of(standby_.name), 20);
    const int answered = load_->report().answered;
    EXPECT_TRUE(eventually(kPatience, [&] { return !stays() || load_->report().answered >= answered + answers; }))
        << load_->report().describe();
    EXPECT_EQ(changed, "") << tail_of_file(log_of(standby_.name), 20);
    expect_no_duplicates();
  }

  void expect_nothing_lost() {
    const LoadReport report = load_->stop();
    EXPECT_TRUE(report.failures.empty()) << report.describe();
    EXPECT_EQ(report.duplicates, 0) << report.describe();
  }

  [[nodiscard]] json shown_plan() const {
    const CommandResult shown = plane().kubectl({"get", "ms", "chat", "-n", name_space(), "-o", "json"});
    const json object = shown.ok() ? json::parse(shown.out) : json::object();
    return object.value("status", json::object()).value("plan", json::object());
  }

  static bool has_reason(const json& plan, const std::string& code) {
    const json reasons = plan.value("reasons", json::array());
    return std::any_of(reasons.begin(), reasons.end(), [&](const json& reason) { return reason.value("code", "") == code; });
  }

  // "chat" without measurements, for a load of this rate and answers of `tokens`.
  [[nodiscard]] json service_for(const char* rate_per_s, int tokens, double percentile, const char* ttft) const {
    json object = model_service();
    json& spec = object["spec"];
    spec["engine"] = {{"args", {"--measure-time", "0"}}};
    spec["slo"] = {{"timeToFirstToken", ttft}, {"timePerOutputToken", "10s"}, {"percentile", percentile}, {"window", "1m"}};
    spec["workload"] = {{"requestsPerSecond", rate_per_s}, {"inputTokens", kPromptTokens}, {"outputTokens", tokens}};
    spec["scaling"]["maxWorkers"] = 8;
    return object;
  }

  Controller leader_, standby_;
  std::string gateway_;
  std::unique_ptr<Load> load_;

 private:
  std::unique_ptr<Process> fast_node_;
  std::vector<json> objects_;
};

// A suite each, so that they run side by side: they mostly wait for slow workers.
class FewerWorkersTest : public OffersTest {};
class MixedClassesTest : public OffersTest {};
class SplitPhasesTest : public OffersTest {};

// Given a service for which closed forms need five workers and the simulator confirms three; expects it to begin with five and
// to move to three under load, then to keep them when the leader dies. No request is lost.
TEST_F(FewerWorkersTest, MovesFromClosedFormsUnderLoad) {
  json object = service_for("0.26", 1, 30, "20s");
  object["spec"]["scaling"]["strategy"] = "Replicated";
  object["spec"]["scaling"]["minWorkers"] = 3;
  apply_all({{"test-cpu", "1M", "1"}}, object);
  // Nothing goes before half a minute of load was seen (kLeastHistoryS).
  ASSERT_TRUE(eventually(kPatience, [&] { return workers().size() == 5; })) << describe_state();
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() > 0; })) << describe_state();
  start_load(0.26, 1);
  expect_preview("ConfirmedOffer");
  EXPECT_EQ(workers().size(), 3U);
  expect_takeover_changes_nothing(9);
  expect_nothing_lost();
}

// Given a cheap slow class and a dear fast one, for which the simulator confirms a mix of both, and other users of all GPUs who
// leave once the offer is there; expects the mix to run and to stay when the leader dies. No request is lost.
TEST_F(MixedClassesTest, RunsAMixOfTwoClasses) {
  start_fast_node();
  if (HasFatalFailure()) return;
  // Without them, workers chosen by closed forms might serve before the offer comes, and what serves is kept.
  for (const char* node : {kNode, "node-fast"}) {
    apply(
        fmt::format("{{apiVersion: v1, kind: Pod, metadata: {{name: tenant-{0}}}, spec: {{nodeName: {0}, "
                    "terminationGracePeriodSeconds: 1, containers: [{{name: main, image: \"{1}\", "
                    "args: [\"-c\", \"exec sleep 1000\"], resources: {{limits: {{{2}: {3}}}}}}}]}}}}",
                    node, kShellImage, kGpuResource, kGpusOfNode));
  }
  json object = service_for("0.16", 1, 50, "40s");
  object["spec"]["scaling"]["strategy"] = "Replicated";
  object["spec"]["scaling"]["minWorkers"] =
      2;  // or the first requests would count as a quiet half minute, and what follows as noise
  apply_all({{"test-cpu", "700k", "1"}, {"test-fast", "1M", "1.3"}}, object);
  ASSERT_TRUE(eventually(kPatience, [&] { return has_reason(shown_plan(), "ConfirmedOffer"); })) << describe_state();
  ASSERT_TRUE(plane().kubectl({"delete", "pod", "-n", name_space(), "tenant-node-1", "tenant-node-fast"}).ok());
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() > 0; })) << describe_state();
  start_load(0.16, 1);
  expect_preview("ConfirmedOffer");
  EXPECT_EQ(live().size(), 2U) << text_of(live());
  expect_takeover_changes_nothing(5);
  expect_nothing_lost();
}

// Given a service with strategy Disaggregated; expects the prefill and decode workers of the preview to run, and to stay when
// the leader dies. No request is lost.
TEST_F(SplitPhasesTest, RunsThePreview) {
  json object = service_for("0.26", 2, 95, "20s");
  object["spec"]["slo"]["timePerOutputToken"] = "1s";
  object["spec"]["scaling"]["strategy"] = "Disaggregated";
  apply_all({{"test-cpu", "3M", "1"}}, object);
  ASSERT_TRUE(eventually(kPatience, [&] { return live().size() == 2; })) << describe_state();
  start_load(0.26, 2);
  expect_preview("SplitPhases");
  EXPECT_EQ(live().size(), 2U) << text_of(live());
  expect_takeover_changes_nothing(9);
  expect_nothing_lost();
}

}  // namespace
}  // namespace windlass::testing
