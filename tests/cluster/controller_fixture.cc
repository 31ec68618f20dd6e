// Implements controller_fixture.h.
#include "tests/cluster/controller_fixture.h"

#include <ctime>
#include <filesystem>

#include <fmt/format.h>

#include "tests/free_port.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr const char* kSystemNamespace = "windlass-system";
constexpr const char* kServicesPath = "/apis/windlass.dev/v1alpha1/namespaces/{}/modelservices";

// What the charts installed, once per program.
struct Installed {
  std::string account;    // the controller's ServiceAccount
  std::string model_dir;  // the tiny model on this machine
  bool done = false;
};

Installed& installed() {
  static Installed instance;
  return instance;
}

std::vector<std::string> yaml_documents(const std::string& text) {
  std::vector<std::string> documents(1);
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == "---") {
      documents.emplace_back();
    } else {
      documents.back() += line + "\n";
    }
  }
  return documents;
}

// Installs the CRDs and charts/windlass without its Deployments: its programs run as processes of this machine.
void install(ControlPlane& plane) {
  const CommandResult crds = plane.helm({"template", "windlass-crds", source_path("/charts/windlass-crds")});
  ASSERT_TRUE(crds.ok()) << crds.describe();
  const CommandResult crds_applied = plane.kubectl({"apply", "--server-side", "-f", "-"}, crds.out);
  ASSERT_TRUE(crds_applied.ok()) << crds_applied.describe();
  const CommandResult established = plane.kubectl({"wait", "--for=condition=Established", "--timeout=240s", "crd", "--all"});
  ASSERT_TRUE(established.ok()) << established.describe();

  const CommandResult space = plane.kubectl({"create", "namespace", kSystemNamespace});
  ASSERT_TRUE(space.ok()) << space.describe();
  const CommandResult chart =
      plane.helm({"template", "--kube-version=1.34", "windlass", source_path("/charts/windlass"), "--namespace",
                  kSystemNamespace, "--set", "image.registry=registry.example,security.create=always"});
  ASSERT_TRUE(chart.ok()) << chart.describe();
  std::string wanted;
  for (const std::string& document : yaml_documents(chart.out)) {
    if (document.find("\nkind: Deployment\n") == std::string::npos) wanted += "---\n" + document;
  }
  const CommandResult applied = plane.kubectl({"apply", "--server-side", "-n", kSystemNamespace, "-f", "-"}, wanted);
  ASSERT_TRUE(applied.ok()) << applied.describe();
  for (const json& account : plane.list(fmt::format("/api/v1/namespaces/{}/serviceaccounts", kSystemNamespace))) {
    const std::string name = account["metadata"].value("name", "");
    if (name.find("controller") != std::string::npos) installed().account = name;
  }
  ASSERT_NE(installed().account, "") << "charts/windlass has no ServiceAccount for the controller";

  installed().model_dir = plane.folder() + "/models/tiny";
  std::filesystem::create_directories(plane.folder() + "/models");
  const CommandResult model = run_command({build_path("/windlass-worker"), "model", "init", "--layers", "2", "--hidden", "64",
                                           "--heads", "4", "--kv-heads", "2", "--intermediate", "128", installed().model_dir});
  ASSERT_TRUE(model.ok()) << model.describe();
  installed().done = true;
}

// One slot of this machine's CPU, declared slow enough that a few requests per second need several workers.

std::string now_rfc3339() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return text;
}

}  // namespace

bool ControllerTest::Controller::leads() const {
  const Sample leader = sample(http_get(url + "/metrics").body, "windlass_controller_leader");
  return leader.found && leader.value == 1;
}

void ControllerTest::SetUp() {
  ClusterTest::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  if (!installed().done) {
    install(plane());
    if (HasFatalFailure()) return;
  }
  account_ = installed().account;
  started_at_ = now_rfc3339();
  set_token("token-of-this-installation");
  apply_object(accelerator_class("test-cpu", "20M"));  // declared slow, so that a few requests per second need several workers
  apply(fmt::format(R"yaml(
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {0}-models}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  hostPath: {{path: {1}}}
  claimRef: {{namespace: {0}, name: models}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: models}}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  volumeName: {0}-models
  resources: {{requests: {{storage: 1Gi}}}}
)yaml",
                    name_space(), std::filesystem::path(installed().model_dir).parent_path().string()));
}

void ControllerTest::TearDown() {
  gateway_.reset();
  ClusterTest::TearDown();
  if (IsSkipped() || installed().account.empty()) return;
  // The next test's controllers should not wait until a killed one's lease expires.
  (void)plane().kubectl({"delete", "lease", "--all", "-n", kSystemNamespace});
  // The namespace's deletion removes the objects. The node is free for the next test once the pods are gone, and no controller
  // runs that could release the finalizer of a worker that was draining when the test ended.
  for (const json& pod : plane().list(pods_path())) {
    (void)plane().send("PATCH", pods_path() + "/" + pod["metadata"].value("name", ""),
                       {{"metadata", {{"finalizers", nullptr}}}}, "application/merge-patch+json");
  }
  EXPECT_TRUE(eventually(kPatience, [&] { return plane().list(pods_path()).empty() && service().is_null(); }))
      << describe_state();
  (void)plane().kubectl({"delete", "persistentvolume", name_space() + "-models", "--wait=false"});
}

void ControllerTest::narrow_rights() {
  const CommandResult rights =
      plane().helm({"template", "--kube-version=1.34", "narrow", source_path("/charts/windlass"), "--namespace",
                    kSystemNamespace, "--show-only", "templates/controller-rbac.yaml", "--set",
                    "image.registry=registry.example,security.create=never,controller.watchNamespaces={" + name_space() + "}"});
  ASSERT_TRUE(rights.ok()) << rights.describe();
  const CommandResult applied = plane().kubectl({"apply", "--server-side", "-f", "-"}, rights.out);
  ASSERT_TRUE(applied.ok()) << applied.describe();
  account_ = "narrow-windlass-controller";
}

std::string ControllerTest::controller_token() const {
  const auto token = plane().token(kSystemNamespace, account_);
  EXPECT_TRUE(token.ok()) << token.error().message;
  return token.ok() ? *token : "";
}

ControllerTest::Controller ControllerTest::start_controller(const std::string& name, const std::string& worker_image,
                                                            const std::vector<std::string>& flags) {
  Controller controller;
  const std::string token = controller_token();
  if (token.empty()) return controller;
  const int port = free_port();
  controller.name = name;
  controller.url = fmt::format("http://127.0.0.1:{}", port);
  controller.credential = credential_of(token);
  std::vector<std::string> argv = {build_path("/windlass-controller"),
                                   "--store=kubernetes",
                                   "--runtime=kubernetes",
                                   fmt::format("--listen=127.0.0.1:{}", port),
                                   "--kubeconfig=" + plane().write_kubeconfig(name_space() + "-" + name, token),
                                   fmt::format("--namespace={}", kSystemNamespace),
                                   "--identity=" + name,
                                   "--token-file=" + token_file(),
                                   "--open-metrics",
                                   "--worker-image=" + worker_image};
  argv.insert(argv.end(), flags.begin(), flags.end());
  controller.process = start_program(name, std::move(argv));
  EXPECT_TRUE(eventually(kPatience, [&] { return http_get(controller.url + "/healthz").status == 200; }))
      << tail_of_file(log_of(name), 20);
  return controller;
}

HttpAnswer ControllerTest::ask(const Controller& controller, const std::string& target) const {
  HttpCall call;
  call.url = controller.url + target;
  call.headers = {"Authorization: Bearer " + read_text_file(token_file())};
  return http(call);
}

std::string ControllerTest::token_file() const { return plane().folder() + "/token-" + name_space(); }

void ControllerTest::set_token(const std::string& token) const { write_text_file(token_file(), token); }

std::string ControllerTest::start_gateway(const std::vector<const Controller*>& controllers) {
  const int port = free_port();
  const int admin_port = free_port();
  std::vector<std::string> argv = {build_path("/windlass-gateway"),
                                   fmt::format("--listen=127.0.0.1:{}", port),
                                   fmt::format("--admin-listen=127.0.0.1:{}", admin_port),
                                   "--id=gateway-of-" + name_space(),
                                   "--token-file=" + token_file(),
                                   "--open-metrics"};
  for (const Controller* controller : controllers) argv.push_back("--controller=" + controller->url);
  gateway_ = start_program("gateway", argv);
  EXPECT_TRUE(eventually(kPatience, [&] {
    return http_get(fmt::format("http://127.0.0.1:{}/health", admin_port)).status == 200;
  })) << tail_of_file(log_of("gateway"), 20);
  return fmt::format("http://127.0.0.1:{}", port);
}

json ControllerTest::accelerator_class(const std::string& name, const std::string& speed, const std::string& price) {
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "AcceleratorClass"},
          {"metadata", {{"name", name}}},
          {"spec",
           {{"nodeSelector", {{"windlass.dev/accelerator", name}}},
            {"resourceName", kGpuResource},
            {"memory", "64Mi"},
            {"memoryBandwidthBytesPerSecond", speed},
            {"peakFlopsPerSecond", {{"fp32", speed}}},
            {"gpusPerNode", kGpusOfNode},
            {"pricePerHour", price}}}};
}

json ControllerTest::model_service() const {
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "ModelService"},
          {"metadata", {{"name", "chat"}, {"namespace", name_space()}}},
          {"spec",
           {{"model",
             {{"servedName", "chat"},
              {"uri", "pvc://models/tiny"},
              {"config", {{"inline", json::parse(read_text_file(installed().model_dir + "/config.json"))}}},
              {"maxContextTokens", 256},
              {"dtype", "FP32"}}},
            {"slo", {{"timeToFirstToken", "20s"}, {"timePerOutputToken", "100ms"}, {"window", "1m"}}},
            {"workload", {{"inputTokens", 32}, {"outputTokens", 16}}},
            {"accelerators", json::array({{{"class", "test-cpu"}}})},
            {"scaling",
             {{"minWorkers", 1},
              {"maxWorkers", 3},
              {"drainTimeout", "1m"},
              {"behavior", {{"scaleDown", {{"stabilizationWindow", "5s"}}}}}}}}}};
}

void ControllerTest::apply_object(const json& object) { apply(object.dump()); }

void ControllerTest::patch_spec(const json& spec) {
  const HttpAnswer answer = plane().send("PATCH", fmt::format(kServicesPath, name_space()) + "/chat", {{"spec", spec}},
                                         "application/merge-patch+json");
  ASSERT_TRUE(answer.ok()) << answer.describe();
}

json ControllerTest::service() const {
  const HttpAnswer answer = plane().get(fmt::format(kServicesPath, name_space()) + "/chat");
  return answer.status == 200 ? answer.json() : json();
}

std::vector<json> ControllerTest::workers() const {
  std::vector<json> result;
  for (json& pod : plane().list(pods_path() + "?labelSelector=windlass.dev%2Fservice%3Dchat")) {
    if (!pod["metadata"].contains("deletionTimestamp")) result.push_back(std::move(pod));
  }
  return result;
}

std::size_t ControllerTest::ready_workers() const {
  std::size_t count = 0;
  for (const json& pod : workers()) count += condition_of(pod, "Ready") == "True" ? 1 : 0;
  return count;
}

std::map<std::string, std::string> ControllerTest::worker_uids() const {
  std::map<std::string, std::string> result;
  for (const json& pod : workers()) result[pod["metadata"].value("name", "")] = pod["metadata"].value("uid", "");
  return result;
}

void ControllerTest::expect_no_duplicates() const {
  std::set<std::string> slots;
  for (const json& pod : workers()) {
    const json labels = pod["metadata"].value("labels", json::object());
    const std::string slot = labels.value("windlass.dev/service", "") + "/" + labels.value("windlass.dev/pool", "") + "/" +
                             labels.value("windlass.dev/slot", "");
    EXPECT_TRUE(slots.insert(slot).second) << "two workers hold slot " << slot;
  }
}

std::string ControllerTest::describe_state() const {
  const json object = service();
  return fmt::format("status: {}\n{}", object.is_object() ? object.value("status", json::object()).dump(1) : "no ModelService",
                     plane().kubectl({"get", "pods", "-n", name_space(), "-o", "wide"}).out);
}

std::vector<AuditEvent> ControllerTest::requests() const {
  std::vector<AuditEvent> result;
  const std::string user = fmt::format("system:serviceaccount:{}:{}", kSystemNamespace, account_);
  for (AuditEvent& event : plane().audit_log()) {
    if (event.user == user && event.received >= started_at_) result.push_back(std::move(event));
  }
  return result;
}

std::vector<AuditEvent> ControllerTest::refusals() const {
  std::vector<AuditEvent> result = requests();
  std::erase_if(result, [](const AuditEvent& event) { return event.code != 403; });
  return result;
}

}  // namespace windlass::testing
