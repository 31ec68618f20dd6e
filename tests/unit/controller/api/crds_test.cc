// crds/, charts/ and examples/ as files: every field has a description, copies are identical, examples load, and the chart
// renders to its golden file.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/api/load.h"
#include "controller/api/schema.h"
#include "controller/api/yaml.h"
#include "tests/fakes/bad_objects.h"
#include "tests/paths.h"

namespace windlass::api {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::vector<fs::path> yaml_files(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(source_path("/") + folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Calls visit(path, schema) for every property below a schema, list items and map values included.
template <class Visit>
void each_field(const json& schema, const std::string& path, const Visit& visit) {
  if (schema.contains("properties")) {
    for (const auto& [name, child] : schema["properties"].items()) {
      visit(path + "." + name, child);
      each_field(child, path + "." + name, visit);
    }
  }
  for (const char* key : {"items", "additionalProperties"}) {
    if (!schema.contains(key)) continue;
    visit(path + "[]", schema[key]);
    each_field(schema[key], path + "[]", visit);
  }
}

json schema_of(const fs::path& file) {
  const auto crd = yaml_to_json(fakes::read_text(file), file);
  EXPECT_TRUE(crd.ok()) << crd.error().message;
  return crd->at("spec").at("versions").at(0).at("schema").at("openAPIV3Schema");
}

// Given each CRD; expects a description on every field (except metadata, where the API server allows none), as a sentence.
TEST(Crds, DescribeEveryField) {
  int fields = 0;
  for (const fs::path& file : yaml_files("crds")) {
    each_field(schema_of(file), "", [&](const std::string& path, const json& field) {
      ++fields;
      if (path == ".metadata") return;
      const std::string description = field.value("description", "");
      EXPECT_GT(description.size(), 8U) << file << path;
      EXPECT_TRUE(description.empty() || description.back() == '.') << file << path << ": " << description;
    });
  }
  EXPECT_GT(fields, 130);
}

// Given each CRD; expects a maximum size for everything in spec that a user writes and a rule may read: texts, lists and maps.
TEST(Crds, LimitTheSizeOfEverythingInSpec) {
  for (const fs::path& file : yaml_files("crds")) {
    each_field(schema_of(file)["properties"]["spec"], ".spec", [&](const std::string& path, const json& field) {
      const std::string type = field.value("type", "");
      const bool text = type == "string" || field.value("x-kubernetes-int-or-string", false);
      EXPECT_TRUE(!text || field.contains("enum") || field.contains("maxLength")) << file << path;
      EXPECT_TRUE(type != "array" || field.contains("maxItems")) << file << path;
      EXPECT_TRUE(!field.contains("additionalProperties") || field.contains("maxProperties")) << file << path;
      EXPECT_TRUE(type != "integer" || (field.contains("minimum") && field.contains("maximum"))) << file << path;
    });
  }
}

// Given an unsupported keyword or rule; expects that loading the CRD fails with file and line.
TEST(Crds, RefuseUnsupportedKeywords) {
  const std::string good = fakes::read_text(yaml_files("crds").front());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const auto crd = load_crd(text, "crd.yaml");
    return crd.ok() ? std::string("loaded") : crd.error().message;
  };
  EXPECT_EQ(with("minProperties: 1", "oneOf: [{}]").rfind("crd.yaml:", 0), 0U);
  EXPECT_NE(with("minProperties: 1", "oneOf: [{}]").find("oneOf: this keyword is not interpreted"), std::string::npos);
  EXPECT_NE(with("rule: self.mode != 'Elastic'", "rule: quantity(self.mode) != 'Elastic'").find("(got 'quantity')"),
            std::string::npos);
  EXPECT_NE(with("reason: FieldValueRequired", "messageExpression: self.x").find("not interpreted"), std::string::npos);
  EXPECT_NE(with("pattern: ^", "pattern: (^").find("must be a pattern that compiles"), std::string::npos);
}

// Given the chart's copies of the CRDs; expects them to be identical to crds/.
TEST(Charts, HoldExactCopiesOfTheCrds) {
  const auto sources = yaml_files("crds");
  const auto copies = yaml_files("charts/windlass-crds/files");
  ASSERT_EQ(sources.size(), copies.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(sources[i].filename(), copies[i].filename());
    EXPECT_TRUE(fakes::read_text(sources[i]) == fakes::read_text(copies[i]))
        << copies[i] << " differs: cp crds/*.yaml charts/windlass-crds/files/";
  }
}

// Given each example; expects it to load without errors.
TEST(Examples, Load) {
  int services = 0;
  for (const fs::path& file : yaml_files("examples")) {
    const auto objects = load_objects(fakes::read_text(file), file.filename());
    ASSERT_TRUE(objects.ok()) << objects.error().message;
    for (const Object& object : *objects) services += std::holds_alternative<ModelService>(object.value) ? 1 : 0;
  }
  EXPECT_EQ(services, 7);
}

// A command's standard output; empty if it fails.
std::string run(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
  if (pipe == nullptr) return "";
  std::string out;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;) out.append(buffer.data(), n);
  return out;
}

// Values that the chart needs where it sees no cluster.
constexpr const char* kRenders = " --set image.registry=registry.example,security.create=always";

// The real helm: on PATH, or as built by tests/cluster/tools. Empty if there is none.
std::string helm() {
  std::string found = run("command -v helm");
  if (found.empty()) found = run("f=$(" + source_path("/tests/cluster/tools/build --check) && [ -x $f/helm ] && echo $f/helm"));
  return found.empty() ? "" : found.substr(0, found.find('\n'));
}

// Given the real helm and the chart's default values, without the Secrets that differ with each rendering; expects output equal
// to the golden file, with valid AcceleratorClasses. WINDLASS_UPDATE_GOLDEN=1 rewrites the golden file.
TEST(Charts, RenderToTheGoldenFile) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const std::string rendered =
      run(program + " template --kube-version 1.34 windlass " + source_path() +
          "/charts/windlass --namespace windlass-system --set image.registry=registry.example"
          ",monitoring.dashboards.enabled=false,security.tls.existingSecret=my-tls,security.token.existingSecret=my-token");
  ASSERT_FALSE(rendered.empty());
  const std::string golden = source_path("/tests/golden/chart_windlass.yaml");
  if (std::getenv("WINDLASS_UPDATE_GOLDEN") != nullptr) std::ofstream(golden) << rendered;
  EXPECT_TRUE(rendered == fakes::read_text(golden)) << "differs from " << golden << "; WINDLASS_UPDATE_GOLDEN=1 rewrites it";

  const auto documents = parse_yaml(rendered, "chart");
  ASSERT_TRUE(documents.ok()) << documents.error().message;
  int classes = 0;
  for (const YamlDocument& document : *documents) {
    const json object = json::parse(document.json);
    if (object["kind"] != "AcceleratorClass") continue;
    ++classes;
    const auto loaded = load_objects(to_yaml(object), "chart");
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  }
  EXPECT_EQ(classes, 6);
}

// Given the real helm and namespaces to watch, one of them listed twice; expects a Role in each, no cluster-wide write
// permission except for the status of AcceleratorClasses, and no permission to read ModelServices elsewhere.
TEST(Charts, PermissionsEndAtTheWatchedNamespaces) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto documents =
      parse_yaml(run(program + " template --kube-version 1.34 windlass " + source_path("/charts/windlass") +
                     " --namespace windlass-system --set 'controller.watchNamespaces={team-a,team-b,team-a}'" + kRenders),
                 "chart");
  ASSERT_TRUE(documents.ok()) << documents.error().message;
  std::vector<std::string> bound_cluster_wide, roles;
  for (const YamlDocument& document : *documents) {
    const json object = json::parse(document.json);
    const std::string name = object["metadata"]["name"];
    if (object["kind"] == "ClusterRoleBinding") bound_cluster_wide.push_back(object["roleRef"]["name"]);
    if (object["kind"] == "Role") roles.push_back(object["metadata"]["namespace"].get<std::string>() + "/" + name);
    if (object["kind"] != "ClusterRole") continue;
    for (const json& rule : object["rules"]) {
      for (const json& resource : rule["resources"]) {
        EXPECT_NE(resource, "modelservices") << name;
        if (resource == "acceleratorclasses/status") continue;
        for (const json& verb : rule["verbs"]) EXPECT_TRUE(verb == "get" || verb == "list" || verb == "watch") << name << rule;
      }
    }
  }
  EXPECT_EQ(bound_cluster_wide, (std::vector<std::string>{"windlass-controller-cluster", "windlass-controller-class-status"}));
  std::sort(roles.begin(), roles.end());
  EXPECT_EQ(roles, (std::vector<std::string>{"team-a/windlass-controller-services", "team-b/windlass-controller-services",
                                             "windlass-system/windlass-controller"}));
}

// Given the real helm; expects both charts to pass its strict lint, and an unknown value to be refused.
TEST(Charts, PassHelmsLint) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  for (const char* chart : {"windlass", "windlass-crds"}) {
    EXPECT_NE(run(program + " lint --strict --kube-version 1.34 " + source_path("/charts/") + chart).find("0 chart(s) failed"),
              std::string::npos);
  }
  const std::string bad =
      run("(" + program + " template --kube-version 1.34 x " + source_path("/charts/windlass --set gateway.replica=3 2>&1)"));
  EXPECT_NE(bad.find("'replica' not allowed"), std::string::npos) << bad;
}

// Given images with a moving tag (latest, or none, which means latest); expects the chart to be refused with the field, the
// rule and the value. Given a digest next to it, or a version tag; expects it to render.
TEST(Charts, MovingTagsAreRefused) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto rendered = [&](const std::string& values) {
    return run("(" + program + " template --kube-version 1.34 x " + source_path("/charts/windlass") + kRenders + " --set " +
               values + " 2>&1)");
  };
  const std::string digest = "sha256:" + std::string(64, 'a');
  const std::string tag = "must be a tag that is never moved, or ";
  const std::string reference = "must end with a digest or with a tag that is never moved (got ";
  for (const auto& [values, message] : std::vector<std::pair<std::string, std::string>>{
           {"image.tag=latest", "image.tag: " + tag + "controller.image.digest must be set (got latest)"},
           {"controller.image.tag=latest", "controller.image.tag: " + tag + "controller.image.digest must be set (got latest)"},
           {"gateway.image.tag=latest", "gateway.image.tag: " + tag + "gateway.image.digest must be set (got latest)"},
           {"worker.image.tag=latest", "worker.image.tag: " + tag + "worker.image.digest must be set (got latest)"},
           {"image.tag=latest,controller.image.digest=" + digest + ",worker.image.digest=" + digest,
            "image.tag: " + tag + "gateway.image.digest must be set (got latest)"},
           {"controller.workerImage=registry:5000/worker", "controller.workerImage: " + reference + "registry:5000/worker)"},
           {"controller.workerImage=worker:latest", "controller.workerImage: " + reference + "worker:latest)"},
           {"controller.fetchImage=fetch", "controller.fetchImage: " + reference + "fetch)"},
           {"controller.fetchImage=a/fetch:latest", "controller.fetchImage: " + reference + "a/fetch:latest)"}}) {
    const std::string text = rendered(values);
    EXPECT_NE(text.find(message), std::string::npos) << values << ": " << text;
  }
  for (const auto& [values, line] : std::vector<std::pair<std::string, std::string>>{
           {"gateway.image.tag=latest,gateway.image.digest=" + digest,
            "image: registry.example/windlass/gateway@" + digest + "\n"},
           {"controller.workerImage=registry:5000/worker:v1", "--worker-image=registry:5000/worker:v1\n"},
           {"controller.fetchImage=fetch:latest@" + digest, "--fetch-image=fetch:latest@" + digest + "\n"}}) {
    const std::string text = rendered(values);
    EXPECT_NE(text.find(line), std::string::npos) << values << ": " << text.substr(0, 200);
  }
}

// Given no registry, so that nodes would pull from a public one, where anybody may own the name; expects the chart to be
// refused with what to do. Given a registry in each repository, or images that are on the nodes already; expects it to render.
TEST(Charts, ARegistryIsNeeded) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto rendered = [&](const std::string& values) {
    return run("(" + program + " template --kube-version 1.34 x " + source_path("/charts/windlass") +
               " --set security.create=always" + values + " 2>&1)");
  };
  for (const char* values : {"", ",controller.image.repository=team/windlass,controller.workerImage=w:1"}) {
    const std::string text = rendered(values);
    EXPECT_NE(text.find("image.registry: must be the registry that holds your images (got nothing)"), std::string::npos)
        << text;
    EXPECT_NE(text.find("scripts/images/build --registry REGISTRY --push"), std::string::npos) << text;
  }
  for (const auto& [values, line] : std::vector<std::pair<std::string, std::string>>{
           {",image.registry=registry.example:5000/team/", "image: registry.example:5000/team/windlass/gateway:"},
           {",image.pullPolicy=Never", "image: windlass/gateway:"},
           {",controller.image.repository=registry.example/c,gateway.image.repository=localhost/g,controller.workerImage=w:1",
            "image: localhost/g:"}}) {
    const std::string text = rendered(values);
    EXPECT_NE(text.find(line), std::string::npos) << values << ": " << text.substr(0, 300);
  }
}

// Given each provider's labels, and labels of the user; expects every class of the catalog to be selected by the provider's
// labels and no others, a class that it does not offer to be missing unless the user selects its nodes, and the user's labels
// to win.
TEST(Charts, ClassesAreSelectedByTheProvidersLabels) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto selectors = [&](const std::string& values) {
    std::map<std::string, json> out;
    const auto documents = parse_yaml(run(program + " template --kube-version 1.34 x " + source_path("/charts/windlass") +
                                          kRenders + values + " --show-only templates/acceleratorclasses.yaml"),
                                      "chart");
    EXPECT_TRUE(documents.ok());
    for (const YamlDocument& document : *documents) {
      const json object = json::parse(document.json);
      EXPECT_TRUE(load_objects(to_yaml(object), "chart").ok());
      out[object["metadata"]["name"]] = object["spec"].value("nodeSelector", json::object());
    }
    return out;
  };
  const std::map<std::string, std::pair<std::string, std::size_t>> providers = {{"gfd", {"nvidia.com/", 6}},
                                                                                {"gke", {"cloud.google.com/", 5}},
                                                                                {"eks", {"eks.amazonaws.com/", 6}},
                                                                                {"karpenter", {"karpenter.k8s.aws/", 6}},
                                                                                {"aks", {"karpenter.azure.com/", 3}}};
  for (const auto& [provider, expected] : providers) {
    const auto classes = selectors(" --set acceleratorNodeLabels=" + provider);
    EXPECT_EQ(classes.size(), expected.second) << provider;
    std::set<json> distinct;
    for (const auto& [name, labels] : classes) {
      EXPECT_TRUE(distinct.insert(labels).second) << provider << name;
      EXPECT_FALSE(labels.empty()) << provider << name;
      for (const auto& label : labels.items()) EXPECT_EQ(label.key().rfind(expected.first, 0), 0U) << provider << label.key();
    }
  }
  const auto mine = selectors(
      " --set "
      "acceleratorNodeLabels=gke,acceleratorClasses.nvidia-l40s.nodeSelector.pool=a,acceleratorClasses.nvidia-l4.nodeSelector"
      ".pool=b,'acceleratorClasses.nvidia-h200.nodeSelector.cloud\\.google\\.com/gke-accelerator=null'"
      ",acceleratorClasses.nvidia-h200.nodeSelector.pool=c,acceleratorClasses.nvidia-b200=null");
  EXPECT_EQ(mine.at("nvidia-l40s"), (json{{"pool", "a"}}));
  EXPECT_EQ(mine.at("nvidia-l4"), (json{{"pool", "b"}, {"cloud.google.com/gke-accelerator", "nvidia-l4"}}));
  EXPECT_EQ(mine.at("nvidia-h200"), (json{{"pool", "c"}}));
  EXPECT_FALSE(mine.contains("nvidia-b200"));
  EXPECT_TRUE(selectors(" --set acceleratorClasses=null").empty());
}

// Given Secrets for pulling images, and users of worker pods; expects the controller to be told, and its own pods to have no
// user. Given OpenShift's API; expects no user for workers either.
TEST(Charts, WorkersGetPullSecretsAndUsers) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto rendered = [&](const std::string& values) {
    return run("(" + program + " template --kube-version 1.34 x " + source_path("/charts/windlass") + kRenders + values +
               " 2>&1)");
  };
  const std::string both = rendered(" --set imagePullSecrets[0].name=a,imagePullSecrets[1].name=b");
  EXPECT_NE(both.find("--worker-pull-secrets=a,b\n"), std::string::npos);
  EXPECT_NE(both.find("--worker-user=65532\n"), std::string::npos);
  EXPECT_EQ(both.find("runAsUser"), std::string::npos);
  EXPECT_EQ(rendered("").find("--worker-pull-secrets"), std::string::npos);
  for (const char* values : {" --set worker.runAsUser=", " --api-versions security.openshift.io/v1"}) {
    EXPECT_NE(rendered(values).find("--worker-user=none\n"), std::string::npos) << values;
  }
  EXPECT_NE(rendered(" --set worker.runAsUser=0").find("at '/worker/runAsUser'"), std::string::npos);
}

// Given what platforms ask of a chart: labels, variables, accounts' annotations, spreading, an autoscaler and a route for the
// gateway; expects each where it belongs, and our own labels to stay. Given none; expects neither an autoscaler nor a route.
// Given mistakes; expects them to be refused.
TEST(Charts, HaveWhatPlatformsAskFor) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto rendered = [&](const std::string& values) {
    return run("(" + program + " template --kube-version 1.34 x " + source_path("/charts/windlass") + kRenders + values +
               " 2>&1)");
  };
  const auto objects = [&](const std::string& values) {
    std::map<std::string, json> out;  // KIND/NAME
    const auto documents = parse_yaml(rendered(values), "chart");
    EXPECT_TRUE(documents.ok());
    for (const YamlDocument& document : *documents) {
      json object = json::parse(document.json);
      const std::string key = object["kind"].get<std::string>() + "/" + object["metadata"]["name"].get<std::string>();
      out[key] = std::move(object);
    }
    return out;
  };
  std::string values;
  for (const std::string part : {"controller", "gateway"}) {
    values += " --set '" + part + ".podLabels.team=a," + part + ".podLabels.app\\.kubernetes\\.io/name=other," + part +
              ".extraEnv[0].name=A," + part + ".extraEnv[0].value=b," + part + ".serviceAccountAnnotations.role=c," + part +
              ".topologySpreadConstraints[0].topologyKey=rack'";
  }
  const auto all = objects(values +
                           " --set gateway.replicas=1,gateway.autoscaling.enabled=true,gateway.autoscaling.maxReplicas=4"
                           ",gateway.httpRoute.enabled=true,gateway.httpRoute.parentRefs[0].name=public"
                           ",gateway.httpRoute.hostnames[0]=llm.example");
  for (const std::string name : {"x-windlass-controller", "x-windlass-gateway"}) {
    const json& pod = all.at("Deployment/" + name)["spec"]["template"];
    EXPECT_EQ(pod["metadata"]["labels"]["team"], "a") << name;
    EXPECT_EQ(pod["metadata"]["labels"]["app.kubernetes.io/name"], "windlass") << name;
    EXPECT_EQ(pod["spec"]["containers"][0]["env"].back(), (json{{"name", "A"}, {"value", "b"}})) << name;
    EXPECT_EQ(pod["spec"]["topologySpreadConstraints"], json::array({json{{"topologyKey", "rack"}}})) << name;
    EXPECT_EQ(all.at("ServiceAccount/" + name)["metadata"]["annotations"]["role"], "c") << name;
  }
  EXPECT_FALSE(all.at("Deployment/x-windlass-gateway")["spec"].contains("replicas"));
  EXPECT_EQ(all.at("HorizontalPodAutoscaler/x-windlass-gateway")["spec"]["maxReplicas"], 4);
  EXPECT_TRUE(all.contains("PodDisruptionBudget/x-windlass-gateway")) << "the autoscaler keeps two";
  const json& route = all.at("HTTPRoute/x-windlass-gateway")["spec"];
  EXPECT_EQ(route["rules"][0]["backendRefs"][0], (json{{"name", "x-windlass-gateway"}, {"port", 80}}));
  EXPECT_EQ(route["rules"][0]["timeouts"]["request"], "0s");
  EXPECT_EQ(route["hostnames"], json::array({"llm.example"}));

  const auto none = objects("");
  for (const char* kind : {"HorizontalPodAutoscaler/x-windlass-gateway", "HTTPRoute/x-windlass-gateway"}) {
    EXPECT_FALSE(none.contains(kind)) << kind;
  }
  EXPECT_EQ(none.at("Deployment/x-windlass-gateway")["spec"]["template"]["spec"]["topologySpreadConstraints"].size(), 2U);
  EXPECT_NE(rendered(" --set gateway.httpRoute.enabled=true").find("gateway.httpRoute.parentRefs: must name the Gateway"),
            std::string::npos);
  EXPECT_NE(rendered(" --set gateway.autoscaling.enabled=true,gateway.autoscaling.maxReplicas=1")
                .find("gateway.autoscaling.maxReplicas: must be at least minReplicas, which is 2 (got 1)"),
            std::string::npos);
  const std::string old =
      run("(" + program + " template --kube-version 1.29 x " + source_path("/charts/windlass") + kRenders + " 2>&1)");
  EXPECT_NE(old.find("requires kubeVersion: >=1.30.0-0"), std::string::npos) << old;
}

// Given the real helm; expects the CRD chart to add every kind to the cluster's roles: `view` may only read, `edit` may also
// write what belongs to a namespace, and neither may write a status or an AcceleratorClass.
TEST(Charts, RolesAreAggregated) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto documents =
      parse_yaml(run(program + " template --kube-version 1.34 x " + source_path("/charts/windlass-crds")), "chart");
  ASSERT_TRUE(documents.ok()) << documents.error().message;
  std::map<std::string, std::set<std::string>> may;  // role of the cluster -> "verb resource"
  std::set<std::string> kinds;
  for (const YamlDocument& document : *documents) {
    const json object = json::parse(document.json);
    if (object["kind"] == "CustomResourceDefinition") kinds.insert(object["spec"]["names"]["plural"]);
    if (object["kind"] != "ClusterRole") continue;
    for (const std::string role : {"view", "edit", "admin"}) {
      if (object["metadata"]["labels"].value("rbac.authorization.k8s.io/aggregate-to-" + role, "") != "true") continue;
      for (const json& rule : object["rules"]) {
        for (const std::string resource : rule["resources"]) {
          for (const std::string verb : rule["verbs"]) may[role].insert(verb + " " + resource);
        }
      }
    }
  }
  const std::set<std::string> read = {"get", "list", "watch"};
  for (const std::string& kind : kinds) {
    for (const std::string& verb : read) EXPECT_TRUE(may["view"].contains(verb + " " + kind)) << verb << kind;
    EXPECT_EQ(may["edit"].contains("create " + kind), kind != "acceleratorclasses") << kind;
  }
  for (const std::string& one : may["view"]) EXPECT_TRUE(read.contains(one.substr(0, one.find(' ')))) << one;
  EXPECT_TRUE(may["edit"].contains("patch modelservices/scale"));
  for (const std::string& one : may["edit"]) {
    if (may["view"].contains(one)) continue;
    EXPECT_EQ(one.find("/status"), std::string::npos) << one;
    EXPECT_EQ(one.find("acceleratorclasses"), std::string::npos) << one;
  }
  EXPECT_EQ(may["admin"], may["edit"]);
}

// Given the real helm, which sees no cluster here, as under Argo CD; expects the chart to refuse to make a token and a
// certificate that would differ in every rendering, with the command that makes them once. Given Secrets that exist; expects
// two equal renderings. Given the command; expects both Secrets.
TEST(Charts, RenderingsWithoutAClusterAreEqual) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto rendered = [&](const std::string& more) {
    return run("(" + program + " template --kube-version 1.34 x " +
               source_path("/charts/windlass --set image.registry=registry.example ") + more + " 2>&1)");
  };
  for (const char* values : {"", "--set security.token.existingSecret=mine", "--set security.tls.existingSecret=mine"}) {
    EXPECT_NE(rendered(values).find("security.create: must be never where Helm sees no cluster"), std::string::npos) << values;
  }
  for (const char* values :
       {"--set security.create=never", "--set security.token.existingSecret=a,security.tls.existingSecret=b"}) {
    const std::string once = rendered(values);
    EXPECT_NE(once.find("kind: Deployment"), std::string::npos) << once;
    EXPECT_EQ(once.find("kind: Secret\n"), std::string::npos);
    EXPECT_TRUE(once == rendered(values)) << values;
  }
  EXPECT_NE(rendered("--set security.create=never").find("secretName: x-windlass-token"), std::string::npos);
  const auto documents = parse_yaml(rendered("--show-only templates/secrets.yaml --set security.create=always"), "secrets");
  ASSERT_TRUE(documents.ok()) << documents.error().message;
  std::vector<std::string> names;
  for (const YamlDocument& document : *documents) names.push_back(json::parse(document.json)["metadata"]["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"x-windlass-token", "x-windlass-tls"}));
}

// Given the real helm; expects the CRD chart to render the files of crds/ with the annotation that keeps them.
TEST(Charts, RenderTheCrdsToBeKept) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto documents =
      parse_yaml(run(program + " template --kube-version 1.34 x " + source_path("/charts/windlass-crds")), "chart");
  ASSERT_TRUE(documents.ok()) << documents.error().message;
  std::vector<json> definitions;
  for (const YamlDocument& document : *documents) {
    json object = json::parse(document.json);
    if (object["kind"] == "CustomResourceDefinition") definitions.push_back(std::move(object));
  }
  const auto sources = yaml_files("crds");
  ASSERT_EQ(definitions.size(), sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    json rendered = definitions[i];
    EXPECT_EQ(rendered["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    rendered["metadata"].erase("annotations");
    EXPECT_EQ(rendered, *yaml_to_json(fakes::read_text(sources[i]), "crd"));
  }
}

}  // namespace
}  // namespace windlass::api
