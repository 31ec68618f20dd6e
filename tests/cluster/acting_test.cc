// What the real API server and its controllers make of how we act: a refused pod template, a quota that is used up, disruption
// budgets that the eviction API obeys, and a change of the worker's spec that is rolled out under load.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cluster/controller_fixture.h"
#include "tests/cluster/harness/http.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

class ActingTest : public ControllerTest {
 protected:
  [[nodiscard]] json able_to_scale() const {
    const json object = service();
    if (!object.is_object()) return json::object();
    const json status = object.value("status", json::object());
    const json conditions = status.value("conditions", json::array());
    for (const json& one : conditions) {
      if (one["type"] == "AbleToScale") return one;
    }
    return json::object();
  }
  void serve(int workers) {
    json object = model_service();
    object["spec"]["scaling"]["minWorkers"] = workers;
    object["spec"]["scaling"]["maxWorkers"] = workers;
    apply_object(object);
    ASSERT_TRUE(eventually(kPatience, [&] { return static_cast<int>(ready_workers()) == workers; })) << describe_state();
  }
  [[nodiscard]] LoadOptions light_load(const std::string& gateway) const {
    LoadOptions options;
    options.url = gateway;
    options.model = served_name();
    options.threads = 1;
    options.pause_s = 0.5;
    return options;
  }
  // As many workers as before serve, and none of them was there before.
  [[nodiscard]] bool replaced(const std::map<std::string, std::string>& before) const {
    const auto now = worker_uids();
    return now.size() == before.size() && ready_workers() == before.size() &&
           std::none_of(now.begin(), now.end(), [&](const auto& one) {
             return std::any_of(before.begin(), before.end(), [&](const auto& old) { return old.second == one.second; });
           });
  }
};

// Given two workers that serve and a pod template that the API server refuses: the condition says so in the server's words, and
// the pods are the very same afterwards; a template that it accepts is then rolled out one by one while no request is lost.
TEST_F(ActingTest, ARefusedTemplateTouchesNothingAndAGoodOneRolls) {
  const Controller controller = start_controller("controller-a");
  const std::string gateway = start_gateway({&controller});
  serve(2);
  if (HasFatalFailure()) return;
  const auto before = worker_uids();
  patch_spec(
      {{"engine",
        {{"podTemplate", {{"spec", {{"containers", json::array({{{"name", "worker"}, {"imagePullPolicy", "Perhaps"}}})}}}}}}}});
  ASSERT_TRUE(eventually(kPatience, [&] { return able_to_scale().value("reason", "") == "PodTemplateInvalid"; }))
      << describe_state();
  EXPECT_THAT(able_to_scale().value("message", ""), HasSubstr("imagePullPolicy"));
  EXPECT_EQ(worker_uids(), before);

  Load load(light_load(gateway));
  patch_spec({{"engine",
               {{"podTemplate",
                 {{"metadata", {{"annotations", {{"example.com/rolled", "yes"}}}}}, {"spec", {{"containers", nullptr}}}}}}}});
  EXPECT_TRUE(eventually(kPatience, [&] { return replaced(before); })) << describe_state();
  for (const json& pod : workers()) EXPECT_EQ(pod["metadata"]["annotations"].value("example.com/rolled", ""), "yes");
  const LoadReport report = load.stop();
  EXPECT_GT(report.answered, 0) << report.describe();
  EXPECT_TRUE(report.failures.empty()) << report.describe();
  EXPECT_TRUE(refusals().empty()) << "the chart's RBAC refuses what the controller does";
}

// Given a service under load and a new release, which brings a controller with another worker image: the old leader goes as a
// rolling update ends it and the new one takes the lead, which replaces nobody; named by the service, the image is rolled out.
// No request is lost by either.
TEST_F(ActingTest, AnUpgradeOfControllerAndWorkersLosesNoRequest) {
  Controller old_release = start_controller("controller-a");
  ASSERT_TRUE(eventually(kPatience, [&] { return old_release.leads(); })) << describe_state();
  const Controller new_release = start_controller("controller-b", kNextWorkerImage);
  const std::string gateway = start_gateway({&old_release, &new_release});
  serve(2);
  if (HasFatalFailure()) return;
  const auto before = worker_uids();

  Load load(light_load(gateway));
  EXPECT_EQ(old_release.process->stop(kPatience), 0);
  ASSERT_TRUE(eventually(kPatience, [&] { return new_release.leads(); })) << describe_state();
  EXPECT_EQ(worker_uids(), before);
  patch_spec({{"engine", {{"image", kNextWorkerImage}}}});
  EXPECT_TRUE(eventually(kPatience, [&] { return replaced(before); })) << describe_state();
  for (const json& pod : workers()) EXPECT_EQ(pod["spec"]["containers"][0].value("image", ""), kNextWorkerImage);
  const LoadReport report = load.stop();
  EXPECT_GT(report.answered, 0) << report.describe();
  EXPECT_TRUE(report.failures.empty()) << report.describe();
  expect_no_duplicates();
}

// Given a quota of two pods and a service that wants three: two serve, the condition names the quota, and the third follows
// once the quota is raised.
TEST_F(ActingTest, AQuotaIsNamedAndWaitedFor) {
  const Controller controller = start_controller("controller-a");
  const auto quota = [&](int pods) {
    apply(fmt::format("{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: few}}, spec: {{hard: {{pods: \"{}\"}}}}}}",
                      pods));
    ASSERT_TRUE(eventually(kPatience, [&] {
      const HttpAnswer answer = plane().get(fmt::format("/api/v1/namespaces/{}/resourcequotas/few", name_space()));
      if (answer.status != 200) return false;
      const json status = answer.json().value("status", json::object());
      return status.value("hard", json::object()).value("pods", "") == std::to_string(pods);
    }));
  };
  quota(2);
  if (HasFatalFailure()) return;
  json object = model_service();
  object["spec"]["scaling"]["minWorkers"] = 3;
  object["spec"]["scaling"]["maxWorkers"] = 3;
  apply_object(object);
  ASSERT_TRUE(eventually(kPatience, [&] { return able_to_scale().value("reason", "") == "QuotaExceeded"; }))
      << describe_state();
  EXPECT_THAT(able_to_scale().value("message", ""), HasSubstr("ResourceQuota few of namespace " + name_space()));
  EXPECT_TRUE(eventually(kPatience, [&] { return ready_workers() == 2; })) << describe_state();
  quota(5);
  EXPECT_TRUE(eventually(kPatience, [&] { return ready_workers() == 3; })) << describe_state();
  EXPECT_TRUE(eventually(kPatience, [&] { return able_to_scale().value("status", "") == "True"; })) << describe_state();
}

// Given two workers that serve: the budget keeps one, so that the eviction API grants one eviction and refuses the next with
// 429 until a successor serves; with the service the budget goes.
TEST_F(ActingTest, EvictionsKeepTheBudget) {
  const Controller controller = start_controller("controller-a");
  serve(2);
  if (HasFatalFailure()) return;
  const std::string path = fmt::format("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/windlass-chat", name_space());
  ASSERT_TRUE(eventually(kPatience, [&] {
    const HttpAnswer budget = plane().get(path);
    if (budget.status != 200) return false;
    const json object = budget.json();
    return object.value("spec", json::object()).value("minAvailable", 0) == 1 &&
           object.value("status", json::object()).value("disruptionsAllowed", 0) == 1;
  })) << plane().get(path).body;
  const auto evict = [&](const std::string& pod) {
    return plane().send(
        "POST", fmt::format("/api/v1/namespaces/{}/pods/{}/eviction", name_space(), pod),
        {{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", {{"name", pod}, {"namespace", name_space()}}}});
  };
  const auto uids = worker_uids();
  EXPECT_EQ(evict(uids.begin()->first).status, 201);
  EXPECT_EQ(evict(uids.rbegin()->first).status, 429);
  EXPECT_TRUE(eventually(kPatience, [&] { return ready_workers() == 2; })) << describe_state();
  ASSERT_TRUE(plane().kubectl({"delete", "ms", "chat", "-n", name_space(), "--wait=false"}).ok());
  EXPECT_TRUE(eventually(kPatience, [&] { return plane().get(path).status == 404; }));
}

}  // namespace
}  // namespace windlass::testing
