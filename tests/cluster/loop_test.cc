// The whole control loop on a real API server: a ModelService becomes worker pods that answer through the gateway, follows the
// load up and down, and leaves nothing behind, also while the API server restarts.
#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "gateway/worker_id.h"
#include "tests/cluster/controller_fixture.h"
#include "tests/cluster/harness/http.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class LoopTest : public ControllerTest {
 protected:
  static std::string refusal_list(const std::vector<AuditEvent>& events) {
    std::string text;
    for (const AuditEvent& event : events) {
      text += fmt::format("{} {}/{} {}/{}\n", event.verb, event.resource, event.subresource, event.name_space, event.name);
    }
    return text;
  }

  static std::string token_of_worker(const json& pod) {
    for (const json& variable : pod["spec"]["containers"].at(0)["env"]) {
      if (variable.value("name", "") == "WINDLASS_WORKER_TOKEN") return variable.value("value", "");
    }
    return "";
  }
};

// Its own ctest entry: it takes as long as the others together.
class ScalingLoopTest : public LoopTest {};

// Given a ModelService applied with kubectl under the chart's RBAC; expects a worker pod to answer a chat request through the
// gateway, but nobody without a token. More load brings more workers, less load fewer, and no request is lost. After the
// deletion Kubernetes' garbage collection leaves nothing.
TEST_F(ScalingLoopTest, ServesScalesAndIsDeleted) {
  const Controller controller = start_controller("controller-a");
  const std::string gateway = start_gateway({&controller});
  // The class's figures decide, not this machine's speed: workers do not measure themselves, answers have one token, and no
  // worker has five iterations in one window of measurement (planner/perf/iteration_windows.h).
  apply_object(accelerator_class("test-cpu", "4M"));
  json object = model_service();
  object["spec"]["engine"] = {{"args", {"--measure-time", "0"}}};
  object["spec"]["slo"]["timePerOutputToken"] = "10s";
  object["spec"]["workload"]["outputTokens"] = 1;
  apply_object(object);
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() >= 1; })) << describe_state();

  const HttpAnswer answer = http_post_json(
      gateway + "/v1/chat/completions",
      {{"model", served_name()}, {"messages", json::array({{{"role", "user"}, {"content", "hello"}}})}, {"max_tokens", 1}});
  ASSERT_EQ(answer.status, 200) << answer.describe();
  EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 1) << answer.body;
  // A caller that uses the pod's address has no token and gets no response.
  const std::string worker = fmt::format("http://{}:8000", workers().at(0)["status"].value("podIP", ""));
  EXPECT_EQ(http_post_json(worker + "/v1/completions", {{"model", served_name()}, {"prompt", "hello"}}).status, 401);
  EXPECT_EQ(http_get(worker + "/metrics").status, 200);
  EXPECT_EQ(answer.headers.at("x-windlass-worker"), gateway::worker_id(name_space() + "/" + worker_uids().begin()->first));
  ASSERT_TRUE(eventually(kPatience, [&] { return condition_of(service(), "Ready") == "True"; })) << describe_state();

  const std::string first_token = token_of_worker(workers().at(0));
  set_token("another-token-of-this-installation");
  ASSERT_TRUE(eventually(kPatience, [&] { return ask(controller, "/v1/plan").status == 200; }))
      << tail_of_file(log_of(controller.name), 20);

  LoadOptions load;
  load.url = gateway;
  load.model = served_name();
  load.threads = 2;
  load.pause_s = 3;
  load.max_tokens = 1;
  load.stream = true;
  Load high(load);
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() >= 3; }))
      << describe_state() << high.report().describe() << ask(controller, "/v1/plan").body;
  expect_no_duplicates();
  std::set<std::string> tokens;
  for (const json& pod : workers()) tokens.insert(token_of_worker(pod));
  EXPECT_EQ(tokens.size(), 2U) << "old workers must keep their token, new workers use the new one";
  EXPECT_TRUE(tokens.contains(first_token));
  ASSERT_TRUE(eventually(kPatience, [&] { return service()["status"]["workers"].value("ready", 0) >= 3; })) << describe_state();
  const CommandResult shown = plane().kubectl({"get", "ms", "-n", name_space()});
  ASSERT_TRUE(shown.ok()) << shown.describe();
  const CommandResult wide = plane().kubectl({"get", "ms,pods", "-n", name_space(), "-o", "wide"});
  write_text_file(output_folder() + "/kubectl-get-ms.txt", "$ kubectl get ms\n" + shown.out);
  write_text_file(output_folder() + "/kubectl-get-ms-wide.txt", "$ kubectl get ms,pods -o wide\n" + wide.out);
  std::string columns;
  std::istringstream head(shown.out.substr(0, shown.out.find('\n')));
  for (std::string column; head >> column;) columns += column + " ";
  EXPECT_EQ(columns, "NAME WORKERS READY GPUS TTFT TPOT ATTAINMENT COST/H AGE ") << shown.out;
  // The first worker answers alone while it has free slots: a second one is needed only by requests that come at once.
  LoadOptions at_once = load;
  at_once.threads = at_once.max_requests = 32;
  at_once.pause_s = 0;
  EXPECT_TRUE(eventually(kPatience, [&] {
    Load burst(at_once);
    const LoadReport report = burst.finish();
    EXPECT_TRUE(report.failures.empty()) << report.describe();
    EXPECT_EQ(report.duplicates, 0) << report.describe();
    return report.by_worker.size() >= 2;
  })) << "new workers get no requests";
  const LoadReport heavy = high.stop();
  EXPECT_TRUE(heavy.failures.empty()) << heavy.describe();
  EXPECT_EQ(heavy.duplicates, 0) << heavy.describe();

  load.threads = 1;
  load.pause_s = 10;
  Load low(load);
  ASSERT_TRUE(eventually(kPatience, [&] { return plane().list(pods_path()).size() == 1; })) << describe_state();
  const LoadReport light = low.stop();
  EXPECT_TRUE(light.failures.empty()) << light.describe();
  EXPECT_EQ(light.duplicates, 0) << light.describe();

  ASSERT_TRUE(plane().kubectl({"delete", "ms", "chat", "-n", name_space(), "--wait=false"}).ok());
  EXPECT_TRUE(eventually(kPatience, [&] { return service().is_null() && plane().list(pods_path()).empty(); }))
      << describe_state();
  const CommandResult left =
      plane().kubectl({"get", "all,configmaps,secrets,leases,poddisruptionbudgets", "-n", name_space(), "-o", "name"});
  EXPECT_EQ(left.out, "configmap/kube-root-ca.crt\n") << "objects of the service are left";
  const std::vector<AuditEvent> events = plane().audit_log();
  const auto pods_made = std::count_if(events.begin(), events.end(), [&](const AuditEvent& event) {
    return event.credential == controller.credential && event.verb == "create" && event.resource == "pods" && event.code == 201;
  });
  EXPECT_GE(pods_made, 3) << "the audit log does not show what the controller did";
  const std::vector<AuditEvent> refused = refusals();
  EXPECT_TRUE(refused.empty()) << "the chart's RBAC refuses requests of the controller:\n" << refusal_list(refused);
}

// Given examples/tiny.yaml with its model on a volume instead of in a folder; expects a worker to answer a chat request through
// the gateway and to stream its first token before the last one is computed.
TEST_F(LoopTest, ExampleServes) {
  const CommandResult model = run_command({build_path("/windlass-worker"), "model", "init", "--layers", "4", "--hidden", "256",
                                           "--seed", "1", plane().folder() + "/models/example"});
  ASSERT_TRUE(model.ok()) << model.describe();
  std::string example = read_text_file(source_path("/examples/tiny.yaml"));
  const std::string place = "file://./build/models/tiny";
  const std::size_t at = example.find("uri: " + place);
  ASSERT_NE(at, std::string::npos) << "examples/tiny.yaml has a different uri";
  example.replace(at + 5, place.size(), "pvc://models/example");
  const Controller controller = start_controller("controller-a");
  const std::string gateway = start_gateway({&controller});
  apply(example);
  const auto ready = [&] {
    const std::vector<json> pods = plane().list(pods_path());
    return pods.size() == 1 && condition_of(pods[0], "Ready") == "True";
  };
  ASSERT_TRUE(eventually(kPatience, ready)) << describe_state();

  HttpCall call;
  call.method = "POST";
  call.url = gateway + "/v1/chat/completions";
  call.headers = {"Content-Type: application/json"};
  call.body = json{{"model", name_space() + "/tiny"},
                   {"stream", true},
                   {"max_tokens", 400},
                   {"messages", json::array({{{"role", "user"}, {"content", "hello"}}})}}
                  .dump();
  call.timeout_s = 240;
  // Whether the worker still runs the request when its first piece arrives. A slow machine may check too late: then try again.
  const std::string worker = plane().list(pods_path())[0]["status"].value("podIP", "");
  const auto streams = [&] {
    bool running = false, first = true;
    call.on_bytes = [&](std::string_view) {
      if (first)
        running = sample(http_get("http://" + worker + ":8000/metrics").body, "windlass_worker_requests_running").value == 1;
      first = false;
      return true;
    };
    const HttpAnswer answer = http(call);
    EXPECT_EQ(answer.status, 200) << answer.describe();
    EXPECT_NE(answer.body.find("data: [DONE]"), std::string::npos);
    return running;
  };
  EXPECT_TRUE(eventually(kPatience, streams)) << "the first piece arrives only after the whole answer was computed";
  EXPECT_TRUE(plane().send("DELETE", "/apis/windlass.dev/v1alpha1/acceleratorclasses/local-cpu", nullptr).ok());
}

// Given a service that needs more accelerators than the node has; expects the surplus pods to stay Pending as unschedulable,
// the others to serve, and conditions that say so.
TEST_F(LoopTest, UnschedulableWorkersDoNotFreezeTheOthers) {
  const Controller controller = start_controller("controller-a");
  const std::string gateway = start_gateway({&controller});
  // Another user of the node leaves room for two workers.
  apply(
      fmt::format("{{apiVersion: v1, kind: Pod, metadata: {{name: tenant}}, spec: {{terminationGracePeriodSeconds: 1, "
                  "containers: [{{name: main, image: \"{}\", "
                  "args: [\"-c\", \"exec sleep 1000\"], resources: {{limits: {{{}: {}}}}}}}]}}}}",
                  kShellImage, kGpuResource, kGpusOfNode - 2));
  ASSERT_TRUE(eventually(kPatience, [&] { return condition_of(pod("tenant"), "Ready") == "True"; }));
  json object = model_service();
  object["spec"]["scaling"]["minWorkers"] = 3;
  apply_object(object);
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() == 2; })) << describe_state();
  const HttpAnswer answer =
      http_post_json(gateway + "/v1/completions", {{"model", served_name()}, {"prompt", "hello"}, {"max_tokens", 4}});
  EXPECT_EQ(answer.status, 200) << answer.describe();
  EXPECT_TRUE(eventually(kPatience, [&] {
    return condition_of(service(), "AbleToScale") == "False" || condition_of(service(), "Feasible") == "False";
  })) << describe_state();
}

// Given the API server killed and restarted under load; expects no worker to be lost or restarted, no request to fail, and the
// controller to carry out a later change.
TEST_F(LoopTest, ApiServerRestartLosesNothing) {
  const Controller controller = start_controller("controller-a");
  const std::string gateway = start_gateway({&controller});
  json object = model_service();
  object["spec"]["scaling"]["minWorkers"] = 2;
  object["spec"]["scaling"]["maxWorkers"] = 3;
  apply_object(object);
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() == 2; })) << describe_state();
  LoadOptions options;
  options.url = gateway;
  options.model = served_name();
  options.threads = 1;
  options.pause_s = 1;
  Load load(options);
  ASSERT_TRUE(eventually(kPatience, [&] { return load.report().answered >= 3; })) << load.report().describe();
  const std::map<std::string, std::string> before = worker_uids();

  plane().stop_api_server(SIGKILL);
  const int answered = load.report().answered;
  EXPECT_TRUE(eventually(kPatience, [&] { return load.report().answered >= answered + 3; }))
      << "requests must not wait for the API server: " << load.report().describe();
  const auto started = plane().start_api_server();
  ASSERT_TRUE(started.ok()) << started.error().message;

  patch_spec({{"scaling", {{"minWorkers", 3}}}});
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() == 3; })) << describe_state();
  const std::map<std::string, std::string> after = worker_uids();
  for (const auto& [name, uid] : before) {
    ASSERT_TRUE(after.contains(name)) << name << " is gone";
    EXPECT_EQ(after.at(name), uid) << name << " was replaced";
  }
  for (const json& pod : workers())
    EXPECT_EQ(pod["status"]["containerStatuses"][0]["restartCount"], 0) << pod["metadata"]["name"];
  expect_no_duplicates();
  const LoadReport report = load.stop();
  EXPECT_TRUE(report.failures.empty()) << report.describe();
}

}  // namespace
}  // namespace windlass::testing
