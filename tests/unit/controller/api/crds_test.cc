// crds/, charts/ and examples/ as files: every field has a description, copies are identical, examples load, and the chart
// renders to its golden file.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
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
  EXPECT_EQ(services, 5);
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
  const std::string rendered = run(program + " template windlass " + source_path() +
                                   "/charts/windlass --namespace windlass-system --set monitoring.dashboards.enabled=false"
                                   ",security.tls.existingSecret=my-tls,security.token.existingSecret=my-token");
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
      parse_yaml(run(program + " template windlass " + source_path("/charts/windlass") +
                     " --namespace windlass-system --set 'controller.watchNamespaces={team-a,team-b,team-a}'"),
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
    EXPECT_NE(run(program + " lint --strict " + source_path("/charts/") + chart).find("0 chart(s) failed"), std::string::npos);
  }
  const std::string bad = run("(" + program + " template x " + source_path("/charts/windlass --set gateway.replica=3 2>&1)"));
  EXPECT_NE(bad.find("'replica' not allowed"), std::string::npos) << bad;
}

// Given images with a moving tag (latest, or none, which means latest); expects the chart to be refused with the field, the
// rule and the value. Given a digest next to it, or a version tag; expects it to render.
TEST(Charts, MovingTagsAreRefused) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto rendered = [&](const std::string& values) {
    return run("(" + program + " template x " + source_path("/charts/windlass --set ") + values + " 2>&1)");
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
           {"gateway.image.tag=latest,gateway.image.digest=" + digest, "image: windlass/gateway@" + digest + "\n"},
           {"controller.workerImage=registry:5000/worker:v1", "--worker-image=registry:5000/worker:v1\n"},
           {"controller.fetchImage=fetch:latest@" + digest, "--fetch-image=fetch:latest@" + digest + "\n"}}) {
    const std::string text = rendered(values);
    EXPECT_NE(text.find(line), std::string::npos) << values << ": " << text.substr(0, 200);
  }
}

// Given the real helm; expects the CRD chart to render the files of crds/ with the annotation that keeps them.
TEST(Charts, RenderTheCrdsToBeKept) {
  const std::string program = helm();
  if (program.empty()) GTEST_SKIP() << "there is no helm: tests/cluster/tools/build makes one";
  const auto documents = parse_yaml(run(program + " template x " + source_path("/charts/windlass-crds")), "chart");
  ASSERT_TRUE(documents.ok()) << documents.error().message;
  const auto sources = yaml_files("crds");
  ASSERT_EQ(documents->size(), sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    json rendered = json::parse((*documents)[i].json);
    EXPECT_EQ(rendered["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    rendered["metadata"].erase("annotations");
    EXPECT_EQ(rendered, *yaml_to_json(fakes::read_text(sources[i]), "crd"));
  }
}

}  // namespace
}  // namespace windlass::api
