// Implements cluster_fixture.h.
#include "tests/cluster/cluster_fixture.h"

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "tests/cluster/harness/network.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using std::chrono::seconds;

// Shared by all tests of this program.
struct Shared {
  std::unique_ptr<ControlPlane> plane;
  std::unique_ptr<Process> kubelet;
  std::string error;  // why the control plane is missing
  bool tools_missing = false;
  bool tried = false;
  bool charts_installed = false;
};

Shared& shared() {
  static Shared instance;
  return instance;
}

// Ends the shared processes before static objects are destroyed.
class SharedPlane : public ::testing::Environment {
 public:
  void TearDown() override {
    shared().kubelet.reset();
    shared().plane.reset();
  }
};
const auto* const kSharedPlane = ::testing::AddGlobalTestEnvironment(new SharedPlane);

std::string kubelet_log() { return shared().plane->folder() + "/kubelet.log"; }

void start_shared() {
  Shared& all = shared();
  all.tried = true;
  const auto tools = find_cluster_tools();
  if (!tools.ok()) {
    all.tools_missing = true;
    all.error = tools.error().message;
    return;
  }
  auto plane = ControlPlane::start();
  if (!plane.ok()) {
    all.error = plane.error().message;
    return;
  }
  all.plane = std::move(plane).value();
  ProcessOptions options;
  options.argv = {build_path("/windlass-test-kubelet"),
                  "--kubeconfig=" + all.plane->kubeconfig(),
                  fmt::format("--node={}", kNode),
                  "--folder=" + all.plane->folder() + "/kubelet",
                  fmt::format("--allocatable={}={}", kGpuResource, kGpusOfNode),
                  "--label=windlass.dev/accelerator=test-cpu",
                  fmt::format("--image={}={}/windlass-worker", kWorkerImage, build_path()),
                  fmt::format("--image={}={}/windlass-worker", kNextWorkerImage, build_path()),
                  fmt::format("--image={}=/bin/sh", kShellImage),
                  fmt::format("--network={}", claim_networks())};
  options.log_path = kubelet_log();
  auto kubelet = Process::start(options);
  if (!kubelet.ok()) {
    all.error = kubelet.error().message;
    return;
  }
  all.kubelet = std::move(kubelet).value();
  const bool ready = eventually(kPatience, [&] {
    const nlohmann::json node = all.plane->get(fmt::format("/api/v1/nodes/{}", kNode)).json();
    return condition_of(node, "Ready") == "True" && !node["spec"].contains("taints");
  });
  if (!ready)
    all.error = "the test kubelet's node did not become ready\n" + tail_of_file(kubelet_log(), 20) + all.plane->tails();
}

}  // namespace

void ClusterTest::SetUp() {
  Shared& all = shared();
  if (!all.tried) start_shared();
  if (all.tools_missing && std::getenv("WINDLASS_REQUIRE_CLUSTER") == nullptr) GTEST_SKIP() << all.error;
  ASSERT_EQ(all.error, "");
  static int number = 0;
  name_space_ = fmt::format("test-{}", ++number);
  const HttpAnswer answer = all.plane->send("POST", "/api/v1/namespaces", {{"metadata", {{"name", name_space_}}}});
  ASSERT_EQ(answer.status, 201) << answer.describe();
  // Pods are refused until the namespace has its default ServiceAccount. After a restart of the API server the controller
  // manager may take up to a minute to list again: its informers back off after each failure.
  ASSERT_TRUE(eventually(kPatience, [&] {
    return all.plane->get(fmt::format("/api/v1/namespaces/{}/serviceaccounts/default", name_space_)).status == 200;
  })) << all.plane->tails();
}

void ClusterTest::TearDown() {
  Shared& all = shared();
  if (!all.plane || name_space_.empty()) return;
  if (HasFailure()) {
    fmt::print(stderr, "{}\n", all.plane->kubectl({"get", "pods,events", "-n", name_space_, "-o", "wide"}).describe());
    fmt::print(stderr, "{}\n", all.plane->kubectl({"get", "ms", "-A", "-o", "wide"}).describe());
    fmt::print(stderr, "--- kubelet\n{}\n{}", tail_of_file(kubelet_log(), 40), all.plane->tails());
    for (const std::string& name : logs_) fmt::print(stderr, "--- {}\n{}\n", name, tail_of_file(log_of(name), 40));
  }
  (void)all.plane->send("DELETE", "/api/v1/namespaces/" + name_space_, nullptr);
}

ControlPlane& ClusterTest::plane() { return *shared().plane; }

void ClusterTest::apply(const std::string& yaml) {
  const CommandResult result = plane().kubectl({"apply", "-n", name_space_, "-f", "-"}, yaml);
  ASSERT_TRUE(result.ok()) << result.describe() << yaml;
}

nlohmann::json ClusterTest::pod(const std::string& name) const {
  const HttpAnswer answer = plane().get(pods_path() + "/" + name);
  return answer.status == 200 ? answer.json() : nlohmann::json();
}

std::unique_ptr<Process> ClusterTest::start_program(const std::string& log_name, std::vector<std::string> argv,
                                                    const std::map<std::string, std::string>& env) {
  ProcessOptions options;
  options.argv = std::move(argv);
  options.env = env;
  options.log_path = log_of(log_name);
  logs_.push_back(log_name);
  auto process = Process::start(options);
  if (!process.ok()) {
    ADD_FAILURE() << process.error().message;
    return nullptr;
  }
  return std::move(process).value();
}

std::string ClusterTest::log_of(const std::string& log_name) const {
  return fmt::format("{}/{}-{}.log", plane().folder(), name_space_, log_name);
}

std::string condition_of(const nlohmann::json& object, const std::string& type) {
  return condition_object(object, type).value("status", "");
}

nlohmann::json condition_object(const nlohmann::json& object, const std::string& type) {
  const nlohmann::json::json_pointer path("/status/conditions");
  if (!object.is_object() || !object.contains(path)) return nlohmann::json::object();
  for (const nlohmann::json& condition : object.at(path)) {
    if (condition.value("type", "") == type) return condition;
  }
  return nlohmann::json::object();
}

std::string output_folder() {
  const char* named = std::getenv("WINDLASS_TEST_OUTPUT");
  const std::string folder = named != nullptr && *named != '\0' ? named : build_path("/test-output");
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace windlass::testing
