// Tests the AcceleratorClass of the local machine.
#include "controller/cli/local/this_machine.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/object_files.h"
#include "tests/unit/controller/cli/example_objects.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

constexpr const char* kFigures =
    R"({"threads": 4, "read_bytes_per_s": 20e9, "fp32_flops_per_s": 400e9, "free_memory_bytes": 10737418240})";

// Given figures of four threads together; expects a class with a quarter of each per core, as many cores as threads, and an
// equal part of four fifths of the memory per core.
TEST(ThisMachine, ClassHasACoresShare) {
  const auto yaml = this_machine_yaml(kFigures);
  ASSERT_TRUE(yaml.ok()) << yaml.error().message;
  const auto objects = api::load_objects(*yaml, "this-machine");
  ASSERT_TRUE(objects.ok()) << objects.error().message;
  const auto& object = std::get<api::AcceleratorClass>(objects->front().value);
  EXPECT_EQ(object.metadata.name, kThisMachine);
  EXPECT_EQ(object.spec.gpus_per_node, 4);
  EXPECT_EQ(object.spec.memory_bytes, 2048LL << 20);
  EXPECT_DOUBLE_EQ(object.spec.memory_bandwidth_bytes_per_s, 5e9);
  EXPECT_DOUBLE_EQ(object.spec.peak_flops_per_s.at(api::Dtype::kFP32), 100e9);
}

// Given malformed figures; expects the field, the value and the rule.
TEST(ThisMachine, WrongFiguresAreNamed) {
  const auto zero = this_machine_yaml(
      R"({"threads": 4, "read_bytes_per_s": 0, "fp32_flops_per_s": 400e9, "free_memory_bytes": 10737418240})");
  ASSERT_FALSE(zero.ok());
  EXPECT_THAT(zero.error().message, HasSubstr("read_bytes_per_s: must be more than 0"));
  const auto words = this_machine_yaml("no figures");
  ASSERT_FALSE(words.ok());
  EXPECT_THAT(words.error().message, HasSubstr("figures"));
}

// Given objects whose services name other classes, and objects with a class of this name; expects that nothing is measured or
// added.
TEST(ThisMachine, IsAddedOnlyWhereItIsMissing) {
  const TempFolder folder;
  for (const std::string& text :
       {std::string(kTinyYaml), replaced(replaced(kTinyYaml, "{class: local-cpu}", "{class: this-machine}"), "name: local-cpu",
                                         "name: this-machine")}) {
    auto objects = read_object_files({folder.file("tiny.yaml", text)});
    ASSERT_TRUE(objects.ok()) << objects.error().message;
    std::ostringstream notes;
    const auto added = add_this_machine(*objects, notes);
    ASSERT_TRUE(added.ok()) << added.error().message;
    EXPECT_EQ(*added, "");
    EXPECT_EQ(notes.str(), "");
    EXPECT_EQ(objects->size(), 2U);
  }
}

}  // namespace
}  // namespace windlass::cli
