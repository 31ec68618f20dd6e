// Tests how YAML files given with -f are read and checked.
#include "controller/cli/console/object_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/iteration_estimate.h"
#include "tests/says.h"
#include "tests/unit/controller/cli/example_objects.h"
#include "tests/unit/profile_text.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// Given unreadable files and a folder; expects one error that names each.
TEST(ObjectFiles, UnreadableFilesAreNamed) {
  const TempFolder folder;
  const auto objects = read_object_files({"/no/such.yaml", folder.path().string()});
  ASSERT_FALSE(objects.ok());
  EXPECT_THAT(objects.error().message, HasSubstr("/no/such.yaml: must be a YAML file"));
  EXPECT_THAT(objects.error().message,
              HasSubstr(folder.path().string() + ": must be a YAML file (cannot be read: it is a folder)"));
}

// Given valid files; expects their objects and no error about references.
TEST(ObjectFiles, GoodFilePasses) {
  const TempFolder folder;
  const auto objects = read_object_files({folder.file("tiny.yaml", kTinyYaml)});
  ASSERT_TRUE(objects.ok()) << objects.error().message;
  EXPECT_EQ(objects->size(), 2u);
  EXPECT_TRUE(check_references(*objects, Classes::kOfFiles).ok());
}

// Given a service that names a missing class; expects an error with file, object, field, rule and value.
TEST(ObjectFiles, UnknownAcceleratorIsRefused) {
  const TempFolder folder;
  const auto objects =
      read_object_files({folder.file("tiny.yaml", replaced(kTinyYaml, "{class: local-cpu}", "{class: h100}"))});
  ASSERT_TRUE(objects.ok()) << objects.error().message;
  const auto checked = check_references(*objects, Classes::kOfFiles);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("tiny.yaml:"));
  EXPECT_THAT(checked.error().message,
              HasSubstr("ModelService default/tiny: spec.accelerators[0].class: must be an AcceleratorClass of the files: "
                        "local-cpu (got 'h100')"));
}

// Given a PerformanceProfile next to the service and class that it measured; expects a plan to use it, as the controller does,
// and the data sheet without it.
TEST(ObjectFiles, PlansUseProfiles) {
  const TempFolder folder;
  const std::string range =
      "range: {sequences: {from: \"1\", to: \"100\"}, meanTokens: {from: \"1\", to: \"100\"}, tokens: {from: \"1\", to: "
      "\"1000\"}}";
  const std::string profile = R"(---
apiVersion: windlass.dev/v1alpha1
kind: PerformanceProfile
metadata: {name: measured}
spec:
  model: {name: tiny}
  accelerator: local-cpu
  gpusPerWorker: 1
  source: {file: x.csv, format: SplitwiseCSV, rows: 40, rowsLeftOut: 0}
  fit:
    type: Linear
    linear:
      form: Aladdin
      prefill: {constantSeconds: "0.002", secondsPerToken: "0.0001", )" +
                              range + R"(}
      decode: {constantSeconds: "0.02", secondsPerToken: "0.000001", secondsPerSequence: "0.0001", )" +
                              range + R"(}
)";
  const auto objects = read_object_files({folder.file("tiny.yaml", kTinyYaml + profile)});
  ASSERT_TRUE(objects.ok()) << objects.error().message;
  const planner::Snapshot snapshot = quiet_snapshot(*objects);
  ASSERT_EQ(snapshot.services.at(0).estimates.size(), 1u);
  const planner::WorkerEstimate& known = snapshot.services[0].estimates[0];
  EXPECT_TRUE(known.from_profile);
  const planner::LinearModel believed(planner::believed_coefficients(*snapshot.services[0].shape, snapshot.accelerators[0].spec,
                                                                     1, planner::EngineType::kWindlass,
                                                                     snapshot.services[0].estimates));
  EXPECT_NEAR(believed.decode_s(8, 100), 0.02 + 8 * (0.0001 + 100e-6), 0.0001);  // the longest context that it measured
  const auto without = read_object_files({folder.file("tiny.yaml", kTinyYaml)});
  ASSERT_TRUE(without.ok());
  EXPECT_TRUE(quiet_snapshot(*without).services.at(0).estimates.empty());
}

// Given an empty file; expects an error for each of the two missing kinds.
TEST(ObjectFiles, NothingToRunIsAnError) {
  const auto checked = check_references({}, Classes::kOfFiles);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("must define at least one ModelService"));
  EXPECT_THAT(checked.error().message, HasSubstr("must define at least one AcceleratorClass"));
}

// Given a service on classes that no file defines; expects a plan to take those of the catalog, by its names and the chart's,
// with as many GPUs as the service may use. Others are rejected, and a run takes none of them.
TEST(ObjectFiles, PlansTakeClassesOfTheCatalog) {
  const TempFolder folder;
  const std::string service = std::string(kTinyYaml).substr(std::string(kTinyYaml).find("---\n"));
  const auto with = [&](const std::string& classes) {
    auto objects = read_object_files({folder.file("s.yaml", replaced(service, "[{class: local-cpu}]", classes))});
    EXPECT_TRUE(objects.ok()) << objects.error().message;
    return std::move(objects).value();
  };
  const auto known = with("[{class: nvidia-h100-80gb, maxGPUs: 3}, {class: l4}]");
  EXPECT_TRUE(check_references(known, Classes::kOfCatalogToo).ok());
  EXPECT_FALSE(check_references(known, Classes::kOfFiles).ok());
  planner::Snapshot snapshot = quiet_snapshot(known);
  EXPECT_EQ(add_catalog_classes(snapshot), (std::vector<std::string>{"l4", "nvidia-h100-80gb"}));
  ASSERT_EQ(snapshot.accelerators.size(), 2u);
  EXPECT_EQ(snapshot.accelerators[1].spec.name, "nvidia-h100-80gb");
  EXPECT_EQ(snapshot.accelerators[1].max_gpus, 3);
  EXPECT_EQ(add_catalog_classes(snapshot), std::vector<std::string>());
  const auto checked = check_references(with("[{class: nvidia-h100-80gb}, {class: tpu}]"), Classes::kOfCatalogToo);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message,
              Says("spec.accelerators[1].class: must be one of v100-32gb*(the catalog), or an AcceleratorClass of the "
                   "files*(got 'tpu')"));
}

// Given a service that names no class, and no class at all; expects the whole catalog. Given a class of the files; expects no
// other.
TEST(ObjectFiles, PlansWithoutClassesTakeTheWholeCatalog) {
  const TempFolder folder;
  const std::string any = replaced(kTinyYaml, "  accelerators: [{class: local-cpu}]\n", "");
  const auto objects = read_object_files({folder.file("s.yaml", any.substr(any.find("---\n")))});
  ASSERT_TRUE(objects.ok()) << objects.error().message;
  EXPECT_TRUE(check_references(*objects, Classes::kOfCatalogToo).ok());
  planner::Snapshot snapshot = quiet_snapshot(*objects);
  EXPECT_EQ(add_catalog_classes(snapshot), planner::accelerator_names());
  const auto with_class = read_object_files({folder.file("t.yaml", any)});
  ASSERT_TRUE(with_class.ok()) << with_class.error().message;
  snapshot = quiet_snapshot(*with_class);
  EXPECT_EQ(add_catalog_classes(snapshot), std::vector<std::string>());
}

// Given a profile on a class that nobody defines; expects an error that says what a plan needs besides. Given one of another
// model; expects a line that says so.
TEST(ObjectFiles, ProfilesThatDoNotApplyAreReported) {
  const TempFolder folder;
  const std::string profile = "---\n" + profile_text("tiny", "my-gpu", 1, "");
  const auto unknown =
      read_object_files({folder.file("s.yaml", replaced(kTinyYaml, "{class: local-cpu}", "{class: my-gpu}") + profile)});
  ASSERT_TRUE(unknown.ok()) << unknown.error().message;
  const auto checked = check_references(*unknown, Classes::kOfCatalogToo);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message,
              Says("(got 'my-gpu'); PerformanceProfile default/p measures its times, but*pricePerHour"));
  const auto unused = read_object_files({folder.file("t.yaml", kTinyYaml + profile)});
  ASSERT_TRUE(unused.ok()) << unused.error().message;
  planner::Snapshot snapshot = quiet_snapshot(*unused);
  EXPECT_THAT(add_profiles(snapshot, *unused),
              testing::ElementsAre(Says("PerformanceProfile default/p: not used: no ModelService*runs tiny on*my-gpu")));
}

// Given a model folder, a GGUF file, a missing model and one of another scheme; expects errors that name the commands to get a
// model.
TEST(ObjectFiles, ModelFoldersAreChecked) {
  const TempFolder folder;
  const auto check = [&](const std::string& uri) {
    const auto objects =
        read_object_files({folder.file("tiny.yaml", replaced(kTinyYaml, "file:///nonexistent/windlass-model", uri))});
    EXPECT_TRUE(objects.ok()) << objects.error().message;
    const auto checked = check_models(*objects);
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_THAT(check("file:///nonexistent/m"), HasSubstr("windlass model init /nonexistent/m"));
  EXPECT_THAT(check("hf://org/model"), HasSubstr("must be file://PATH on one machine (got 'hf://org/model')"));
  folder.file("model/config.json", "{}");
  EXPECT_EQ(check("file://" + (folder.path() / "model").string()), "");
  EXPECT_EQ(check("file://" + folder.file("blocks/m.gguf", "")), "");
  EXPECT_EQ(check("file://" + (folder.path() / "blocks").string()), "");
  EXPECT_THAT(check("file://" + folder.file("text/m.txt", "")), HasSubstr("must be a folder with a config.json"));
  EXPECT_THAT(check("file://" + (folder.path() / "text").string()), HasSubstr("must be a folder with a config.json"));
}

// Given valid objects; expects a snapshot that has the service with its shape and load, and the class with one node's GPUs.
TEST(ObjectFiles, QuietSnapshotHasEverything) {
  const TempFolder folder;
  const auto objects = read_object_files({folder.file("tiny.yaml", kTinyYaml)});
  ASSERT_TRUE(objects.ok()) << objects.error().message;
  const planner::Snapshot snapshot = quiet_snapshot(*objects);
  ASSERT_EQ(snapshot.services.size(), 1u);
  ASSERT_EQ(snapshot.accelerators.size(), 1u);
  ASSERT_TRUE(snapshot.services[0].shape.has_value()) << snapshot.services[0].shape_unknown_reason;
  EXPECT_EQ(snapshot.services[0].shape->layers, 2);
  EXPECT_DOUBLE_EQ(snapshot.services[0].workload.requests_per_s, 1);
  EXPECT_EQ(snapshot.accelerators[0].allocatable_gpus, 4);
}

}  // namespace
}  // namespace windlass::cli
