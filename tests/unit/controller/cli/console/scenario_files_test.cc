// Tests how the documents of -f files are separated.
#include "controller/cli/console/scenario_files.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/says.h"
#include "tests/unit/controller/cli/example_objects.h"

namespace windlass::cli {
namespace {

constexpr const char* kClass = R"(apiVersion: windlass.dev/v1alpha1
kind: AcceleratorClass
metadata: {name: my-gpu}
spec:
  memory: 48Gi
  memoryBandwidthBytesPerSecond: 864G
  peakFlopsPerSecond: {bf16: 181T}
  gpusPerNode: 8
  pricePerHour: "1"
)";
constexpr const char* kScenario = "# apiVersion: in a comment only\nseed: 3\n";

// Given a scenario before, after and between classes, and in a file of its own; expects the scenario on its own lines, and the
// classes.
TEST(ScenarioFiles, DocumentsAreSeparated) {
  const TempFolder folder;
  const std::string both = std::string(kClass) + "---\n" + kScenario;
  const std::string between = "---\n" + both + "--- # the last\n" + replaced(kClass, "my-gpu", "thy-gpu");
  struct Case {
    std::vector<std::string> files;
    int line;  // of "seed"
  };
  const std::string only_class = folder.file("class.yaml", kClass);
  const std::vector<Case> table = {
      {{folder.file("s.yaml", kScenario), only_class}, 2},
      {{only_class, folder.file("t.yaml", kScenario)}, 2},
      {{folder.file("both.yaml", both)}, 12},
      {{folder.file("before.yaml", std::string(kScenario) + "---\n" + kClass)}, 2},
      {{folder.file("between.yaml", between)}, 13},
  };
  for (const Case& one : table) {
    const auto input = read_scenario_input(one.files, "one SCENARIO");
    ASSERT_TRUE(input.ok()) << input.error().message;
    const std::size_t at = input->yaml.find("seed: 3");
    ASSERT_NE(at, std::string::npos) << one.files.front();
    EXPECT_EQ(1 + std::count(input->yaml.begin(), input->yaml.begin() + static_cast<std::ptrdiff_t>(at), '\n'), one.line)
        << one.files.front();
    EXPECT_EQ(input->yaml.find("AcceleratorClass"), std::string::npos);
    ASSERT_TRUE(input->accelerators.find("my-gpu").has_value());
    EXPECT_EQ(input->accelerators.find("my-gpu")->price_per_hour, 1);
  }
}

// Given several scenarios, none, other objects, and wrong classes; expects the file and what may be there.
TEST(ScenarioFiles, OtherDocumentsAreRefused) {
  const TempFolder folder;
  const auto refusal = [](const std::vector<std::string>& files) {
    const auto input = read_scenario_input(files, "one SCENARIO");
    return input.ok() ? "" : input.error().message;
  };
  const std::string scenario = folder.file("s.yaml", kScenario), own = folder.file("class.yaml", kClass);
  EXPECT_THAT(refusal({scenario, scenario}), Says("-f: must hold one SCENARIO*(got 2 such documents)"));
  EXPECT_THAT(refusal({folder.file("two.yaml", "a: 1\n---\nb: 2\n")}), Says("two.yaml: must hold one SCENARIO*(got 2 such"));
  EXPECT_THAT(refusal({own}), Says("class.yaml: must hold one SCENARIO*(got 0 such documents)"));
  EXPECT_THAT(refusal({folder.file("empty.yaml", "")}), Says("empty.yaml: must hold one SCENARIO*(got 0 such documents)"));
  EXPECT_THAT(refusal({scenario, folder.file("tiny.yaml", kTinyYaml)}),
              Says("tiny.yaml:12: must be an AcceleratorClass next to *s.yaml (got ModelService default/tiny)"));
  EXPECT_THAT(refusal({scenario, folder.file("wrong.yaml", std::string(kScenario) + "---\n" + "apiVersion: v1\n")}),
              Says("-f: must hold one SCENARIO*(got 2 such documents)"));
  EXPECT_THAT(refusal({folder.file("bad.yaml", std::string(kScenario) + "---\napiVersion: v1\nkind: Pod\n")}),
              Says("bad.yaml:4"));
  EXPECT_THAT(refusal({"/no/such.yaml"}), Says("/no/such.yaml: must be a YAML file with one SCENARIO (cannot be read"));
}

}  // namespace
}  // namespace windlass::cli
