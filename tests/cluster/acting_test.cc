// How a real API server and its controllers respond to what Windlass does: a rejected pod template, an exhausted quota,
// disruption budgets and the eviction API, chains of several pods, a rollout under load, rights limited to a namespace, and the
// Pod Security Standard restricted.
#include <algorithm>
#include <set>

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
  [[nodiscard]] json able_to_scale() const { return condition_object(service(), "AbleToScale"); }
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
  // Sends a request with the controllers' token; returns the HTTP status.
  [[nodiscard]] static long ask(const std::string& token, const std::string& path, const json& body = nullptr) {
    HttpCall call;
    call.method = body.is_null() ? "GET" : "POST";
    call.url = plane().url() + path;
    call.headers = {"Content-Type: application/json"};
    if (!body.is_null()) call.body = body.dump();
    call.tls.ca_path = plane().admin().ca_path;
    call.tls.bearer_token = token;
    return http(call).status;
  }
  // Whether as many workers as before are ready and all of them are new.
  [[nodiscard]] bool replaced(const std::map<std::string, std::string>& before) const {
    const auto now = worker_uids();
    return now.size() == before.size() && ready_workers() == before.size() &&
           std::none_of(now.begin(), now.end(), [&](const auto& one) {
             return std::any_of(before.begin(), before.end(), [&](const auto& old) { return old.second == one.second; });
           });
  }
};

// Given two ready workers and a pod template that the API server rejects; expects a condition with the server's message and
// unchanged pods. A valid template is then rolled out one worker at a time, and no request is lost.
TEST_F(ActingTest, ARejectedTemplateChangesNothingAndAValidOneRollsOut) {
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
  EXPECT_TRUE(refusals().empty()) << "the chart's RBAC refuses requests of the controller";
}

// Given a service under load and a new release whose controller has another worker image; expects the old leader to stop as in
// a rolling update and the new leader to replace no worker. Once the service names the image, it is rolled out. Neither loses a
// request.
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

// Given a quota of two pods and a service that wants three; expects two to serve, a condition that names the quota, and the
// third once the quota is raised.
TEST_F(ActingTest, WaitsForAQuotaAndNamesIt) {
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

// Given two ready workers; expects a budget that keeps one: the eviction API grants one eviction and refuses the next with 429
// until a successor is ready. The budget goes with the service.
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

// Given a service on chains of two servers, under load; expects two pods for each chain, chains that come and go as a whole,
// and one whose second server is evicted to be replaced by another. No request is lost.
TEST_F(ActingTest, AChainIsOneWorkerOfSeveralPods) {
  json linked = accelerator_class("chain-cpu", "20M");
  linked["spec"]["nodeSelector"] = {{"windlass.dev/accelerator", "test-cpu"}};
  linked["spec"]["interNodeLink"] = {{"bandwidthBytesPerSecond", "1G"}, {"latencyMicroseconds", 100}};
  apply_object(linked);
  const Controller controller = start_controller("controller-a");
  const std::string gateway = start_gateway({&controller});
  json object = model_service();
  object["spec"]["accelerators"] = json::array({{{"class", "chain-cpu"}}});
  object["spec"]["scaling"]["strategy"] = "Chained";
  object["spec"]["scaling"]["maxWorkers"] = 1;
  apply_object(object);
  const auto chains = [&](std::size_t count) {
    return ready_workers() == 2 * count && workers().size() == 2 * count &&
           service().value("status", json::object()).value("workers", json::object()).value("ready", 0) ==
               static_cast<int>(count);
  };
  ASSERT_TRUE(eventually(kPatience, [&] { return chains(1); })) << describe_state();
  std::set<std::string> blocks;
  for (const json& pod : workers()) {
    for (const json& word : pod["spec"]["containers"][0]["args"]) {
      if (word.get<std::string>().rfind("--blocks=", 0) == 0) blocks.insert(word);
    }
  }
  EXPECT_EQ(blocks, (std::set<std::string>{"--blocks=0:1", "--blocks=1:2"}));

  Load load(light_load(gateway));
  patch_spec({{"scaling", {{"minWorkers", 2}, {"maxWorkers", 2}}}});
  ASSERT_TRUE(eventually(kPatience, [&] { return chains(2); })) << describe_state();
  const auto before = worker_uids();
  const auto second = std::find_if(before.begin(), before.end(), [](const auto& one) { return one.first.ends_with("-s1"); });
  ASSERT_NE(second, before.end());
  const std::string first = second->first.substr(0, second->first.size() - 3);
  ASSERT_TRUE(before.contains(first));
  const HttpAnswer evicted =
      plane().send("POST", fmt::format("/api/v1/namespaces/{}/pods/{}/eviction", name_space(), second->first),
                   {{"apiVersion", "policy/v1"},
                    {"kind", "Eviction"},
                    {"metadata", {{"name", second->first}, {"namespace", name_space()}}}});
  ASSERT_EQ(evicted.status, 201) << evicted.describe();
  const auto is_new = [&](const std::string& name) {
    const auto now = worker_uids();
    return !now.contains(name) || now.at(name) != before.at(name);
  };
  EXPECT_TRUE(eventually(kPatience, [&] { return is_new(first) && is_new(second->first) && chains(2); })) << describe_state();
  patch_spec({{"scaling", {{"minWorkers", 1}, {"maxWorkers", 1}}}});
  EXPECT_TRUE(eventually(kPatience, [&] { return chains(1); })) << describe_state();
  const LoadReport report = load.stop();
  EXPECT_GT(report.answered, 0) << report.describe();
  EXPECT_TRUE(report.failures.empty()) << report.describe();
  ASSERT_TRUE(plane().kubectl({"delete", "ms", "chat", "-n", name_space(), "--wait=false"}).ok());
  EXPECT_TRUE(eventually(kPatience, [&] { return workers().empty(); })) << describe_state();
}

// Given the chart's rights for one namespace, and a controller that watches this namespace and a missing one; expects the
// service to get its workers, budget and status. Only requests for the missing namespace are refused, and the log names it. The
// token cannot create pods or read ModelServices elsewhere.
TEST_F(ActingTest, RightsEndAtTheWatchedNamespaces) {
  narrow_rights();
  const Controller controller =
      start_controller("controller-a", kWorkerImage, {"--watch-namespaces=" + name_space() + ",not-there"});
  serve(2);
  if (HasFatalFailure()) return;
  const std::string budget = fmt::format("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/windlass-chat", name_space());
  EXPECT_TRUE(eventually(kPatience, [&] {
    return able_to_scale().value("status", "") == "True" && plane().get(budget).status == 200;
  })) << describe_state();
  for (const AuditEvent& refused : refusals()) {
    EXPECT_EQ(refused.name_space, "not-there") << refused.verb << " " << refused.resource << " " << refused.name;
  }
  EXPECT_THAT(read_text_file(log_of("controller-a")), HasSubstr("namespace not-there: must exist"));

  const std::string token = controller_token();
  const json pod = {{"metadata", {{"name", "mine"}}},
                    {"spec", {{"containers", json::array({{{"name", "main"}, {"image", kShellImage}}})}}}};
  const auto pods = [](const std::string& name_space) { return fmt::format("/api/v1/namespaces/{}/pods", name_space); };
  EXPECT_EQ(ask(token, pods(name_space()) + "?dryRun=All", pod), 201);
  for (const char* other : {"default", "kube-system", "windlass-system"}) EXPECT_EQ(ask(token, pods(other), pod), 403) << other;
  const std::string services = "/apis/windlass.dev/v1alpha1";
  EXPECT_EQ(ask(token, services + "/namespaces/" + name_space() + "/modelservices"), 200);
  EXPECT_EQ(ask(token, services + "/namespaces/default/modelservices"), 403);
  EXPECT_EQ(ask(token, services + "/modelservices"), 403);
}

// Given pod templates that would give access to the node; expects the API server to accept each ModelService, but the
// controller to create no pod, and a condition that names the field. A namespace that enforces the Pod Security Standard
// restricted refuses such a pod even from the administrator, but admits workers, including one that fetches its model.
TEST_F(ActingTest, WorkersKeepToThePodSecurityStandard) {
  const Controller controller = start_controller("controller-a", kWorkerImage, {fmt::format("--fetch-image={}", kShellImage)});
  const json privileged = {{"name", "worker"}, {"image", kWorkerImage}, {"securityContext", {{"privileged", true}}}};
  const std::vector<std::pair<std::string, json>> table = {
      {"securityContext.privileged", {{"containers", json::array({privileged})}}},
      {"hostPath", {{"volumes", json::array({{{"name", "root"}, {"hostPath", {{"path", "/"}}}}})}}},
      {"spec.hostPID", {{"hostPID", true}}},
      {"serviceAccountName", {{"serviceAccountName", "default"}}},
  };
  const auto named = [&](const std::string& name) {
    json object = model_service();
    object["metadata"]["name"] = object["spec"]["model"]["servedName"] = name;
    return object;
  };
  for (std::size_t i = 0; i < table.size(); ++i) {
    json object = named(fmt::format("bad-{}", i));
    object["spec"]["engine"]["podTemplate"]["spec"] = table[i].second;
    apply_object(object);
  }
  const std::string services = fmt::format("/apis/windlass.dev/v1alpha1/namespaces/{}/modelservices", name_space());
  for (std::size_t i = 0; i < table.size(); ++i) {
    json said;
    EXPECT_TRUE(eventually(kPatience, [&] {
      said = condition_object(plane().get(fmt::format("{}/bad-{}", services, i)).json(), "AbleToScale");
      return said.value("status", "") == "False" && said.value("reason", "") == "PodTemplateInvalid";
    })) << said;
    EXPECT_THAT(said.value("message", ""), HasSubstr(table[i].first));
  }
  for (const AuditEvent& asked : requests()) {
    EXPECT_FALSE(asked.verb == "create" && asked.resource == "pods" && asked.name_space == name_space()) << asked.name;
  }

  ASSERT_TRUE(plane().kubectl({"label", "namespace", name_space(), "pod-security.kubernetes.io/enforce=restricted"}).ok());
  const json pod = {{"metadata", {{"name", "mine"}}},
                    {"spec", {{"hostPID", true}, {"containers", json::array({{{"name", "main"}, {"image", kShellImage}}})}}}};
  HttpAnswer refusal;
  EXPECT_TRUE(eventually(kPatience, [&] {
    refusal = plane().send("POST", pods_path() + "?dryRun=All", pod);
    return refusal.status == 403;
  })) << refusal.describe();
  EXPECT_THAT(refusal.body, HasSubstr("violates PodSecurity"));
  apply_object(model_service());
  EXPECT_TRUE(eventually(kPatience, [&] { return ready_workers() == 1; })) << describe_state();
  json fetching = named("fetching");
  fetching["spec"]["model"]["uri"] = "hf://example/tiny";
  apply_object(fetching);
  EXPECT_TRUE(eventually(kPatience, [&] {
    const std::vector<json> made = plane().list(pods_path() + "?labelSelector=windlass.dev%2Fservice%3Dfetching");
    return made.size() == 1 && made[0]["spec"].value("initContainers", json::array()).size() == 1;
  })) << describe_state();
  EXPECT_TRUE(refusals().empty());
}

}  // namespace
}  // namespace windlass::testing
