// The validator on the table that also runs against the real API server (tests/golden/bad_objects.yaml), defaults, and
// messages.
#include "controller/api/validation.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/api/yaml.h"
#include "tests/fakes/bad_objects.h"
#include "tests/paths.h"

namespace windlass::api {
namespace {

using nlohmann::json;

std::string texts(const std::vector<FieldError>& errors) {
  std::string out;
  for (const FieldError& error : errors) out += std::string(cause(error.error_class)) + " " + error.text() + "\n";
  return out;
}

std::vector<FieldError> check(const std::string& yaml) {
  const auto object = yaml_to_json(yaml, "test");
  if (!object.ok()) return {{"", FieldErrorClass::kInvalid, object.error().message}};
  return validate(*object);
}

constexpr const char* kGood = R"(
apiVersion: windlass.dev/v1alpha1
kind: ModelService
metadata: {name: good, namespace: default}
spec:
  model: {uri: "file://x"}
  slo: {timeToFirstToken: 500ms, timePerOutputToken: 50ms}
)";

// Given crds/ as compiled in; expects all of it to load: every schema keyword and CEL rule is supported.
TEST(Validation, InterpretsAllOfCrds) {
  const auto sound = check_crds();
  ASSERT_TRUE(sound.ok()) << sound.error().message;
  EXPECT_EQ(known_kinds(), (std::vector<std::string>{"AcceleratorClass", "ModelService", "PerformanceProfile"}));
  EXPECT_TRUE(is_namespaced("ModelService"));
  EXPECT_FALSE(is_namespaced("AcceleratorClass"));
}

// Given the table's good objects; expects no errors.
TEST(Validation, AcceptsGoodObjects) {
  for (const json& good : fakes::load_bad_objects(source_path()).good) EXPECT_EQ(texts(validate(good)), "") << good.dump(2);
  EXPECT_EQ(texts(check(kGood)), "");
}

// Given each bad object of the table; expects exactly its errors, a CEL rule's message verbatim. If a field is unknown, other
// errors may follow (the API server stops at the unknown field).
TEST(Validation, ReportsTheSameErrorsAsTheApiServer) {
  for (const fakes::BadObject& bad : fakes::load_bad_objects(source_path()).cases) {
    const std::vector<FieldError> errors = validate(bad.object);
    std::vector<std::pair<std::string, std::string>> expected;
    std::vector<std::pair<std::string, std::string>> found;
    for (const fakes::ExpectedError& error : bad.errors) {
      expected.emplace_back(error.path, error.error_class);
      const bool said = std::any_of(errors.begin(), errors.end(), [&](const FieldError& other) {
        return other.path == error.path && (error.message.empty() || other.detail == error.message);
      });
      EXPECT_TRUE(said) << bad.name << ": expected \"" << error.message << "\", found\n" << texts(errors);
    }
    for (const FieldError& error : errors) found.emplace_back(error.path, cause(error.error_class));
    std::sort(expected.begin(), expected.end());
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, expected) << bad.name << "\n" << texts(errors);
  }
}

// Given an object with only required fields; expects the schema's defaults, including nested ones; null counts as absent.
TEST(Validation, FillsInDefaults) {
  auto object = yaml_to_json(kGood, "test");
  ASSERT_TRUE(object.ok());
  (*object)["spec"]["scaling"] = nullptr;
  (*object)["spec"]["priorityClassName"] = nullptr;
  const json full = with_defaults(*object);
  EXPECT_EQ(full["spec"]["engine"], (json{{"type", "Windlass"}}));
  EXPECT_EQ(full["spec"]["slo"]["percentile"], 95);
  EXPECT_EQ(full["spec"]["slo"]["window"], "5m");
  EXPECT_EQ(full["spec"]["scaling"], (json{{"strategy", "Auto"},
                                           {"minWorkers", 1},
                                           {"drainTimeout", "30m"},
                                           {"mode", "Apply"},
                                           {"behavior",
                                            {{"scaleUp", {{"stabilizationWindow", "0s"}}},
                                             {"scaleDown", {{"stabilizationWindow", "5m"}}},
                                             {"tolerance", "0.1"}}}}));
  EXPECT_FALSE(full["spec"].contains("priorityClassName"));
  EXPECT_EQ(texts(validate(*object)), "");
}

// Given an unquoted decimal; expects a message that says to quote it.
TEST(Validation, SaysToQuoteADecimal) {
  auto object = yaml_to_json(kGood, "test");
  ASSERT_TRUE(object.ok());
  (*object)["spec"]["slo"]["percentile"] = 99.5;
  const auto errors = validate(*object);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(
      errors[0].text(),
      "spec.slo.percentile: Invalid value: must be an integer, or a quoted decimal such as \"2.5\" (got 99.5, a number); write "
      "\"99.5\" in quotes");
}

// Given a violated rule; expects its message and the value.
TEST(Validation, ShowsTheValueAfterARulesMessage) {
  auto object = yaml_to_json(kGood, "test");
  ASSERT_TRUE(object.ok());
  (*object)["spec"]["scaling"] = {{"minWorkers", 5}, {"maxWorkers", 3}};
  EXPECT_EQ(texts(validate(*object)),
            "FieldValueInvalid spec.scaling.minWorkers: Invalid value: minWorkers must be between 0 and maxWorkers (got 5)\n");
}

// Given a wrong value in an environment variable, which may be a secret; expects a message without it.
TEST(Validation, NeverShowsAnEnvironmentsValue) {
  auto object = yaml_to_json(kGood, "test");
  ASSERT_TRUE(object.ok());
  (*object)["spec"]["engine"]["env"] = json::array({{{"name", "TOKEN"}, {"value", 48151623}}});
  const auto errors = validate(*object);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].path, "spec.engine.env[0].value");
  EXPECT_EQ(errors[0].text().find("48151623"), std::string::npos) << errors[0].text();
}

// Given something that is not one of our objects; expects an error at apiVersion, kind or the whole.
TEST(Validation, RefusesOtherKinds) {
  EXPECT_NE(texts(check("- a\n")).find("must be a map"), std::string::npos);
  EXPECT_NE(texts(check("a: b\n")).find("apiVersion: Required value"), std::string::npos);
  EXPECT_NE(
      texts(check("{apiVersion: v1, kind: Pod}")).find("apiVersion: Invalid value: must be windlass.dev/v1alpha1 (got \"v1\")"),
      std::string::npos);
  EXPECT_NE(texts(check("{apiVersion: windlass.dev/v1alpha1, kind: Pod}"))
                .find("kind: Invalid value: must be AcceleratorClass, ModelService or PerformanceProfile (got \"Pod\")"),
            std::string::npos);
  const std::string wrong = texts(check("{apiVersion: windlass.dev/v1alpha1, kind: ModelService, metadata: [], spec: 3}"));
  EXPECT_NE(wrong.find("metadata: Invalid value"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("spec: Invalid value: must be a map (got 3"), std::string::npos) << wrong;
}

}  // namespace
}  // namespace windlass::api
