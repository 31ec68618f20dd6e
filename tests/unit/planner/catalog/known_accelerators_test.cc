// Tests how names of accelerators are found.
#include "planner/catalog/known_accelerators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/catalog/efficiency.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

// Given a class of the files with a name of the catalog; expects the class, and the catalog for all other names.
TEST(KnownAccelerators, FilesComeFirst) {
  AcceleratorSpec own;
  own.name = "l4";
  own.price_per_hour = 123;
  const KnownAccelerators known({own});
  EXPECT_EQ(known.find("l4"), own);
  EXPECT_EQ(known.find("l40s")->name, "l40s");
  EXPECT_NE(KnownAccelerators().find("l4"), own);
}

// Given the chart's name; expects the catalog's figures and efficiencies under that name.
TEST(KnownAccelerators, TheChartsNamesAreKnown) {
  const auto spec = KnownAccelerators().find("nvidia-l40s");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->name, "nvidia-l40s");
  EXPECT_EQ(spec->memory_bytes, KnownAccelerators().find("l40s")->memory_bytes);
  EXPECT_EQ(efficiency_of("nvidia-l40s", true).measured_on, "l40s");
}

// Given unknown names; expects nothing, and a text with both places to look.
TEST(KnownAccelerators, UnknownNamesAreNotFound) {
  for (const char* name : {"", "-", "tpu", "nvidia-", "nvidia-tpu"}) EXPECT_FALSE(KnownAccelerators().find(name)) << name;
  EXPECT_THAT(KnownAccelerators().allowed(), HasSubstr("mi300x (the catalog), or an AcceleratorClass of the files"));
  AcceleratorSpec own;
  own.name = "my-gpu";
  EXPECT_THAT(KnownAccelerators({own}).allowed(), HasSubstr("one of my-gpu (AcceleratorClasses of the files), v100-32gb"));
}

}  // namespace
}  // namespace windlass::planner
