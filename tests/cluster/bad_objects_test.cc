// Sends the table of invalid objects (tests/golden/bad_objects.yaml) to a real API server and to our own validator. Both must
// report the same field path and error class for each, and the exact message of a broken CEL rule.
#include "tests/fakes/bad_objects.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "controller/api/validation.h"
#include "tests/cluster/cluster_fixture.h"
#include "tests/cluster/harness/http.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using nlohmann::json;

// One error as reported by either side.
struct Said {
  std::string path;
  std::string error_class;
  std::string message;

  [[nodiscard]] std::string key() const { return path + " " + error_class; }
};

std::string list_of(const std::vector<Said>& all) {
  std::string text;
  for (const Said& one : all) text += fmt::format("  {} {}: {}\n", one.path, one.error_class, one.message);
  return text;
}

std::vector<std::string> keys_of(const std::vector<Said>& all) {
  std::vector<std::string> keys;
  for (const Said& one : all) keys.push_back(one.key());
  std::sort(keys.begin(), keys.end());
  return keys;
}

class BadObjectsTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const CommandResult applied = plane().kubectl({"apply", "--server-side", "-f", source_path("/crds")});
    ASSERT_TRUE(applied.ok()) << applied.describe();
    const CommandResult established =
        plane().kubectl({"wait", "--for=condition=Established", "--timeout=240s", "crd", "--all"});
    ASSERT_TRUE(established.ok()) << established.describe();
  }

  // A dry-run create with strict field validation; returns the response.
  static HttpAnswer create(const json& object) {
    const std::string kind = object["kind"];
    const std::string collection = kind == "ModelService"         ? "namespaces/default/modelservices"
                                   : kind == "PerformanceProfile" ? "namespaces/default/performanceprofiles"
                                                                  : "acceleratorclasses";
    return plane().send("POST", "/apis/windlass.dev/v1alpha1/" + collection + "?dryRun=All&fieldValidation=Strict", object);
  }

  // The server's errors, without the causes that the table's header exempts.
  static std::vector<Said> server_errors(const HttpAnswer& answer) {
    std::vector<Said> all;
    const json status = answer.json();
    const std::string message = status.value("message", "");
    if (answer.status == 400) {
      const std::string mark = "unknown field \"";
      for (std::size_t at = message.find(mark); at != std::string::npos; at = message.find(mark, at + 1)) {
        const std::size_t from = at + mark.size();
        all.push_back({message.substr(from, message.find('"', from) - from), "UnknownField", message});
      }
      return all;
    }
    const json::json_pointer causes("/details/causes");
    if (!status.contains(causes)) return all;
    for (const json& cause : status.at(causes)) {
      const std::string field = cause.value("field", "");
      if (field == "<nil>" || field.rfind('.', 0) == 0) continue;
      all.push_back({field, cause.value("reason", ""), cause.value("message", "")});
    }
    return all;
  }

  static std::vector<Said> our_errors(const json& object) {
    std::vector<Said> all;
    for (const api::FieldError& error : api::validate(object))
      all.push_back({error.path, api::cause(error.error_class), error.detail});
    return all;
  }

  // Checks that the errors are those of the table, each with its message.
  static void expect_said(const std::string& side, const fakes::BadObject& bad, const std::vector<Said>& said) {
    const bool unknown_field = bad.errors.front().error_class == "UnknownField";
    for (const fakes::ExpectedError& expected : bad.errors) {
      const bool found = std::any_of(said.begin(), said.end(), [&](const Said& one) {
        return one.path == expected.path && one.error_class == expected.error_class && one.message.ends_with(expected.message);
      });
      EXPECT_TRUE(found) << bad.name << ": " << side << " does not report " << expected.path << " " << expected.error_class
                         << " '" << expected.message << "', but\n"
                         << list_of(said);
    }
    if (!unknown_field) {
      EXPECT_EQ(said.size(), bad.errors.size()) << bad.name << ": " << side << " says\n" << list_of(said);
    }
  }
};

// Given the table's valid objects; expects both sides to accept them.
TEST_F(BadObjectsTest, ServerAndValidatorAcceptValidObjects) {
  for (const json& object : fakes::load_bad_objects(source_path()).good) {
    const HttpAnswer answer = create(object);
    EXPECT_EQ(answer.status, 201) << answer.describe();
    EXPECT_TRUE(our_errors(object).empty()) << list_of(our_errors(object));
  }
}

// Given the examples in this repository; expects the API server to accept each and to know every field.
TEST_F(BadObjectsTest, ServerAcceptsTheExamples) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("/examples"))) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const CommandResult applied =
        plane().kubectl({"apply", "--dry-run=server", "--validate=strict", "-n", name_space(), "-f", entry.path().string()});
    EXPECT_TRUE(applied.ok()) << entry.path() << ": " << applied.describe();
  }
  EXPECT_GE(files, 1);
}

// Given each invalid object; expects both sides to report the errors of the table, and the same ones as each other.
TEST_F(BadObjectsTest, ServerAndValidatorRejectInvalidObjectsAlike) {
  const fakes::BadObjectTable table = fakes::load_bad_objects(source_path());
  ASSERT_GE(table.cases.size(), 50U);
  for (const fakes::BadObject& bad : table.cases) {
    ASSERT_FALSE(bad.errors.empty()) << bad.name;
    const HttpAnswer answer = create(bad.object);
    EXPECT_TRUE(answer.status == 400 || answer.status == 422) << bad.name << ": " << answer.describe();
    const std::vector<Said> server = server_errors(answer);
    const std::vector<Said> ours = our_errors(bad.object);
    expect_said("the API server", bad, server);
    expect_said("our validator", bad, ours);
    // An unknown field ends the server's validation; ours continues.
    if (answer.status != 422) continue;
    EXPECT_EQ(keys_of(server), keys_of(ours)) << bad.name << "\nserver:\n" << list_of(server) << "ours:\n" << list_of(ours);
  }
}

}  // namespace
}  // namespace windlass::testing
