// The real helm against a real API server: both charts are installed, upgraded and uninstalled as a user does it, invalid
// values are rejected with clear messages, and kubectl shows the custom resources as documented.
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cluster/cluster_fixture.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

const std::string kChart = source_path("/charts/windlass");
const std::string kCrdChart = source_path("/charts/windlass-crds");
constexpr const char* kService = R"yaml(
apiVersion: windlass.dev/v1alpha1
kind: ModelService
metadata: {name: chat}
spec:
  model: {uri: "hf://example/chat", architecture: llama3-8b}
  slo: {timeToFirstToken: 500ms, timePerOutputToken: 50ms}
)yaml";

class HelmTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ok(helm({"upgrade", "--install", "windlass-crds", kCrdChart, "--namespace", "default"}));
    ok(plane().kubectl({"wait", "--for=condition=Established", "--timeout=240s", "crd", "--all"}));
  }
  void TearDown() override {
    if (!IsSkipped() && !name_space().empty()) (void)helm({"uninstall", "windlass", "--namespace", name_space()});
    ClusterTest::TearDown();
  }

  // Runs helm as a user of this cluster.
  [[nodiscard]] static CommandResult helm(std::vector<std::string> arguments) {
    arguments.push_back("--kubeconfig=" + plane().kubeconfig());
    return plane().helm(arguments);
  }
  // Runs `helm VERB windlass charts/windlass` in this test's namespace.
  [[nodiscard]] CommandResult chart(const std::string& verb, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        verb, "windlass", kChart, "--namespace", name_space(), "--set", "image.registry=registry.example"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return helm(arguments);
  }
  static void ok(const CommandResult& result) { ASSERT_TRUE(result.ok()) << result.describe(); }

  [[nodiscard]] json object(const std::string& path) const {
    const HttpAnswer answer = plane().get(path);
    return answer.status == 200 ? answer.json() : json();
  }
  [[nodiscard]] json deployment(const std::string& name) const {
    return object(fmt::format("/apis/apps/v1/namespaces/{}/deployments/{}", name_space(), name));
  }
  [[nodiscard]] json secret(const std::string& name) const {
    return object(fmt::format("/api/v1/namespaces/{}/secrets/{}", name_space(), name)).value("data", json::object());
  }
  [[nodiscard]] std::string service_path() const {
    return fmt::format("/apis/windlass.dev/v1alpha1/namespaces/{}/modelservices/chat", name_space());
  }
  // KIND/NAME of each object that a selector finds in this test's namespace.
  [[nodiscard]] std::set<std::string> names(const std::string& kinds) const {
    const CommandResult listed =
        plane().kubectl({"get", kinds, "-n", name_space(), "-l", "app.kubernetes.io/instance=windlass", "-o", "name"});
    EXPECT_TRUE(listed.ok()) << listed.describe();
    std::set<std::string> result;
    std::istringstream lines(listed.out);
    for (std::string line; std::getline(lines, line);) result.insert(line);
    return result;
  }
};

// Given both charts; expects helm's strict lint to pass, also with every option enabled.
TEST_F(HelmTest, LintsStrictly) {
  ok(plane().helm({"lint", "--strict", kCrdChart}));
  ok(plane().helm({"lint", "--strict", "--kube-version=1.34", kChart}));
  ok(plane().helm({"lint", "--strict", "--kube-version=1.34", kChart, "--set",
                   "networkPolicy.enabled=true,networkPolicy.workerNamespaces={team-a,team-b},monitoring.openMetrics=false,"
                   "monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true,security.tls.enabled=false,"
                   "controller.watchNamespaces={team-a,team-b},"
                   "gateway.tls.existingSecret=public,gateway.apiKeys.existingSecret=keys,controller.replicas=1"}));
}

// Given an empty cluster; expects the chart to install two controllers and two gateways, each with a budget and spread over
// nodes, the catalog, the dashboards, a token, a certificate and a test. An upgrade changes what was asked for (such as rights
// in the watched namespaces instead of the whole cluster) and keeps token and certificate. Upgrading the custom resources keeps
// the objects. Uninstalling both charts keeps custom resources and services.
TEST_F(HelmTest, InstallUpgradeUninstall) {
  ok(chart("install", {"--set", "networkPolicy.workerNamespaces={" + name_space() + "}"}));
  for (const char* name : {"windlass-controller", "windlass-gateway"}) {
    const json made = deployment(name);
    ASSERT_TRUE(made.is_object()) << name;
    EXPECT_EQ(made["spec"]["replicas"], 2) << name;
    const json& pod = made["spec"]["template"]["spec"];
    EXPECT_EQ(pod["topologySpreadConstraints"].size(), 2U) << name;
    EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true) << name;
    EXPECT_EQ(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true) << name;
    EXPECT_EQ(pod["containers"][0]["livenessProbe"]["httpGet"]["scheme"], "HTTPS") << name;
  }
  EXPECT_EQ(deployment("windlass-gateway")["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
  EXPECT_EQ(names("poddisruptionbudgets"), (std::set<std::string>{"poddisruptionbudget.policy/windlass-controller",
                                                                  "poddisruptionbudget.policy/windlass-gateway"}));
  EXPECT_EQ(names("networkpolicies").size(), 3U);
  EXPECT_EQ(names("services"), (std::set<std::string>{"service/windlass-controller", "service/windlass-gateway",
                                                      "service/windlass-gateway-admin"}));
  EXPECT_EQ(names("configmaps"),
            (std::set<std::string>{"configmap/windlass-dashboard-operations", "configmap/windlass-dashboard-services"}));
  EXPECT_EQ(plane()
                .list("/apis/windlass.dev/v1alpha1/acceleratorclasses?labelSelector=app.kubernetes.io%2Finstance%3Dwindlass")
                .size(),
            6U);
  const json token = secret("windlass-token");
  const json certificate = secret("windlass-tls");
  EXPECT_GE(token.value("token", "").size(), 16U);
  for (const char* key : {"tls.crt", "tls.key", "ca.crt"}) EXPECT_NE(certificate.value(key, ""), "") << key;
  // The deployments mount exactly what was created.
  std::set<std::string> mounted;
  const json controller = deployment("windlass-controller");
  for (const json& volume : controller["spec"]["template"]["spec"]["volumes"]) {
    mounted.insert(volume["secret"].value("secretName", ""));
  }
  EXPECT_EQ(mounted, (std::set<std::string>{"windlass-tls", "windlass-token"}));
  const CommandResult hooks = helm({"get", "hooks", "windlass", "--namespace", name_space()});
  EXPECT_THAT(hooks.out, HasSubstr("helm.sh/hook: test")) << hooks.describe();
  EXPECT_THAT(hooks.out, HasSubstr(fmt::format("https://windlass-controller.{}.svc:9401/healthz", name_space())));
  apply(kService);

  ok(chart("upgrade",
           {"--set", "gateway.replicas=3,networkPolicy.enabled=false,controller.tick=2s,controller.watchNamespaces={default," +
                         name_space() + "},acceleratorClasses.nvidia-l4=null"}));
  EXPECT_EQ(deployment("windlass-gateway")["spec"]["replicas"], 3);
  const std::string upgraded = deployment("windlass-controller").dump();
  for (const std::string& flag :
       {std::string("--tick=2s"), std::string("--instance=windlass"), "--watch-namespaces=default," + name_space()}) {
    EXPECT_THAT(upgraded, HasSubstr(flag));
  }
  const std::string rbac = "/apis/rbac.authorization.k8s.io/v1";
  EXPECT_EQ(plane().get(rbac + "/clusterroles/windlass-controller").status, 404);
  EXPECT_EQ(plane().get(rbac + "/namespaces/default/roles/windlass-controller-services").status, 200);
  EXPECT_EQ(names("roles"), (std::set<std::string>{"role.rbac.authorization.k8s.io/windlass-controller",
                                                   "role.rbac.authorization.k8s.io/windlass-controller-services"}));
  EXPECT_TRUE(names("networkpolicies").empty()) << "a disabled option must remove its objects";
  EXPECT_EQ(plane().get("/apis/windlass.dev/v1alpha1/acceleratorclasses/nvidia-l4").status, 404);
  EXPECT_EQ(secret("windlass-token"), token);
  EXPECT_EQ(secret("windlass-tls"), certificate);
  ok(helm({"upgrade", "windlass-crds", kCrdChart, "--namespace", "default"}));
  EXPECT_EQ(plane().get(service_path()).status, 200);

  ok(helm({"uninstall", "windlass", "--namespace", name_space()}));
  EXPECT_TRUE(names("deployments,services,secrets,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets").empty());
  const std::string cluster_wide = "clusterroles,clusterrolebindings,acceleratorclasses";
  EXPECT_EQ(plane().get(rbac + "/namespaces/default/roles/windlass-controller-services").status, 404);
  EXPECT_EQ(plane().kubectl({"get", cluster_wide, "-l", "app.kubernetes.io/instance=windlass", "-o", "name"}).out, "");
  ok(helm({"uninstall", "windlass-crds", "--namespace", "default"}));
  EXPECT_EQ(plane().get(service_path()).status, 200) << "a ModelService went with the custom resources' release";
  // An uninstalled release can be installed again over the objects it left.
  ok(helm({"install", "windlass-crds", kCrdChart, "--namespace", "default"}));
}

// Given a release, and a second one with an instance of its own; expects the second to install, and to leave the first one's
// AcceleratorClasses to it. After the first is gone, an upgrade of the second brings them.
TEST_F(HelmTest, ASecondReleaseSharesTheClasses) {
  const auto owner = [] {
    const HttpAnswer answer = plane().get("/apis/windlass.dev/v1alpha1/acceleratorclasses/nvidia-l4");
    return answer.status != 200 ? std::string() : answer.json()["metadata"]["labels"].value("app.kubernetes.io/instance", "");
  };
  ok(chart("install"));
  EXPECT_EQ(owner(), "windlass");
  std::vector<std::string> second = {
      "upgrade",     "--install",  "other", kChart,
      "--namespace", name_space(), "--set", "image.registry=registry.example,controller.instance=other"};
  ok(helm(second));
  EXPECT_EQ(owner(), "windlass");
  ok(chart("upgrade"));
  EXPECT_EQ(owner(), "windlass");
  ok(helm({"uninstall", "windlass", "--namespace", name_space()}));
  EXPECT_EQ(owner(), "");
  ok(helm(second));
  EXPECT_EQ(owner(), "other");
  ok(helm({"uninstall", "other", "--namespace", name_space()}));
}

// Given the user's own Secrets; expects the chart to create none, to mount these, and to pass only flags that the programs
// know. With TLS disabled, probes and gateways use HTTP.
TEST_F(HelmTest, MountsTheUsersOwnSecrets) {
  ok(chart("install",
           {"--set",
            "security.tls.existingSecret=my-tls,security.token.existingSecret=my-token,gateway.tls.existingSecret=my-public,"
            "gateway.apiKeys.existingSecret=my-keys"}));
  EXPECT_TRUE(names("secrets").empty());
  const std::string gateway = deployment("windlass-gateway").dump();
  for (const char* name : {"my-tls", "my-token", "my-public", "my-keys"}) {
    EXPECT_THAT(gateway, HasSubstr(fmt::format("\"secretName\":\"{}\"", name)));
  }
  EXPECT_THAT(gateway, HasSubstr("--api-keys=/etc/windlass/api-keys/keys.json"));
  // The programs know every flag that the chart passes.
  for (const std::string program : {"windlass-controller", "windlass-gateway"}) {
    const std::string help = run_command({build_path("/") + program, "--help"}).out;
    const json made = deployment(program);
    const json arguments = made["spec"]["template"]["spec"]["containers"][0]["args"];
    EXPECT_GE(arguments.size(), 10U);
    for (const std::string argument : arguments) {
      EXPECT_THAT(help, HasSubstr(argument.substr(0, argument.find('=')))) << program;
    }
  }
  ok(chart("upgrade", {"--set", "security.tls.enabled=false"}));
  const std::string plain = deployment("windlass-gateway").dump();
  EXPECT_THAT(plain, HasSubstr(fmt::format("--controller=http://windlass-controller.{}.svc:9401", name_space())));
  EXPECT_EQ(plain.find("tls.crt"), std::string::npos);
}

// Given invalid values; expects helm to reject them before it creates anything, naming the field and the rule.
TEST_F(HelmTest, RejectsInvalidValues) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"gateway.replica=3", "at '/gateway': additional properties 'replica' not allowed"},
      {"controller.replicas=0", "at '/controller/replicas': minimum: got 0, want 1"},
      {"controller.instance=My_Windlass", "at '/controller/instance'"},
      {"controller.replicas=two", "at '/controller/replicas': got string, want integer"},
      {"gateway.queueTimeout=60", "at '/gateway/queueTimeout': got number, want string"},
      {"gateway.queueTimeout=soon", "at '/gateway/queueTimeout': 'soon' does not match pattern"},
      {"gateway.drainTimeout=30m",
       "gateway.terminationGracePeriodSeconds: must be more than 1805, the sum of drainDelay and drainTimeout (got 630)"},
      {"controller.prometheus.url=prometheus:9090",
       "at '/controller/prometheus/url': 'prometheus:9090' does not match pattern"},
      {"controller.prometheus.tokenSecret.name=token",
       "controller.prometheus.url: must be http://HOST:PORT or https://HOST:PORT with a selector or tokenSecret"},
      {"image.registry=https://registry.example", "at '/image/registry'"},
      {"controller.image.tag=a b", "at '/controller/image/tag'"},
      {"controller.image.digest=sha256:123", "at '/controller/image/digest'"},
      {"security.token.existingSecret=My_Secret", "at '/security/token/existingSecret'"},
      {"gateway.service.type=LoadBalanced", "at '/gateway/service/type': value must be one of"},
      {"networkPolicy.workerNamespaces={Team A}", "at '/networkPolicy/workerNamespaces/0'"},
      {"monitoring.serviceMonitor=true", "at '/monitoring/serviceMonitor': got boolean, want object"},
      {"acceleratorClasses.mine.memory=80Gi", "at '/acceleratorClasses/mine': missing propert"},
  };
  for (const auto& [value, message] : table) {
    const CommandResult refused = chart("install", {"--set", value});
    EXPECT_FALSE(refused.ok()) << value;
    EXPECT_THAT(refused.err, HasSubstr(message)) << value;
  }
  EXPECT_TRUE(names("deployments,secrets").empty());
}

// Given a ModelService; expects kubectl to find it by its short name with the documented columns, `kubectl scale` to set
// minWorkers, and the scale subresource to report the current workers with their selector.
TEST_F(HelmTest, KubectlShowsColumnsAndScales) {
  apply(kService);
  const json status = {{"status",
                        {{"selector", "windlass.dev/service=chat"},
                         {"workers", {{"current", 4}, {"desired", 5}, {"ready", 3}}},
                         {"gpus", 8},
                         {"costPerHour", "24"},
                         {"slo", {{"attainment", "0.991"}, {"timeToFirstToken", "312ms"}, {"timePerOutputToken", "21ms"}}}}}};
  ASSERT_TRUE(plane().send("PATCH", service_path() + "/status", status, "application/merge-patch+json").ok());
  const CommandResult shown = plane().kubectl({"get", "ms", "-n", name_space()});
  std::vector<std::string> words;
  std::istringstream text(shown.out);
  for (std::string word; text >> word;) words.push_back(word);
  ASSERT_EQ(words.size(), 18U) << shown.describe();
  EXPECT_EQ(std::vector<std::string>(words.begin(), words.begin() + 9),
            (std::vector<std::string>{"NAME", "WORKERS", "READY", "GPUS", "TTFT", "TPOT", "ATTAINMENT", "COST/H", "AGE"}));
  EXPECT_EQ(std::vector<std::string>(words.begin() + 9, words.begin() + 17),
            (std::vector<std::string>{"chat", "4", "3", "8", "312ms", "21ms", "0.991", "24"}));
  for (const char* name : {"modelservices", "modelservice", "windlass", "perf", "ac"}) {
    const CommandResult listed = plane().kubectl({"get", name, "-n", name_space()});
    EXPECT_TRUE(listed.ok()) << listed.describe();
  }

  ok(plane().kubectl({"scale", "ms/chat", "--replicas=3", "-n", name_space()}));
  EXPECT_EQ(object(service_path())["spec"]["scaling"]["minWorkers"], 3);
  const json scale = object(service_path() + "/scale");
  EXPECT_EQ(scale["spec"]["replicas"], 3);
  EXPECT_EQ(scale["status"]["replicas"], 4);
  EXPECT_EQ(scale["status"]["selector"], "windlass.dev/service=chat");
  const CommandResult refused = plane().kubectl({"scale", "ms/chat", "--replicas=-1", "-n", name_space()});
  EXPECT_FALSE(refused.ok()) << refused.describe();
}

// Given the build folder on PATH; expects kubectl to run windlass as its plugin: the help shows `kubectl windlass`, and exit
// codes are passed on.
TEST_F(HelmTest, KubectlPlugin) {
  const auto plugin = [](std::vector<std::string> arguments) {
    const auto tools = find_cluster_tools();
    std::vector<std::string> argv = {(tools.ok() ? *tools : "") + "/kubectl", "windlass"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_command(argv, "", {{"PATH", build_path(":/usr/bin:/bin")}});
  };
  const CommandResult help = plugin({"--help"});
  ASSERT_TRUE(help.ok()) << help.describe();
  EXPECT_THAT(help.out, HasSubstr("kubectl windlass"));
  EXPECT_THAT(help.out, HasSubstr("explain"));
  const CommandResult wrong = plugin({"explian", "ms/chat"});
  EXPECT_NE(wrong.exit_status, 0);
  EXPECT_THAT(wrong.err, HasSubstr("kubectl windlass: command must be one of up, attach"));
  const CommandResult valid = plugin({"validate", "-f", source_path("/examples/tiny.yaml")});
  EXPECT_TRUE(valid.ok()) << valid.describe();
}

}  // namespace
}  // namespace windlass::testing
