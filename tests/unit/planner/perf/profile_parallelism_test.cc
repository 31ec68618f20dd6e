// Tests of profiles between measured degrees of tensor parallelism.
#include "planner/perf/profile_parallelism.h"

#include <vector>

#include <gtest/gtest.h>

namespace windlass::planner {
namespace {

// Times that are 1 + 8 / degree at every shape.
std::vector<ProfileRow> rows_at(const std::vector<int>& degrees) {
  std::vector<ProfileRow> rows;
  for (const int degree : degrees) {
    for (const double prompt : {128.0, 1024.0})
      rows.push_back({"m", "gpu", degree, prompt, 1, 1, 1 + 8.0 / degree, 1 + 8.0 / degree, 0});
  }
  return rows;
}

// Given rows of degrees 2 and 8; expects at 4 the line in 1 / degree, 3, for prompts and tokens, counted as extrapolated; and
// the tables themselves at the measured degrees.
TEST(ProfileParallelism, LiesBetweenNeighbours) {
  const auto rows = rows_at({2, 8});
  for (const auto reading : {ProfileReading::kBatchTokens, ProfileReading::kBatchShape}) {
    const auto between = profile_model(rows, {"m", "gpu", 4}, reading, 1000);
    ASSERT_TRUE(between.ok()) << between.error().message;
    EXPECT_NEAR((*between)->iteration_s(prefill_batch(1, 500)), 3, 1e-12);
    EXPECT_NEAR((*between)->iteration_s(decode_batch(1, 128)), 3, 1e-12);
    EXPECT_EQ((*between)->coverage(prefill_batch(1, 500)), Coverage::kExtrapolated);
    EXPECT_EQ((*between)->kv_capacity_tokens(), 1000);
    const auto measured = profile_model(rows, {"m", "gpu", 8}, reading, 1000);
    ASSERT_TRUE(measured.ok());
    EXPECT_EQ((*measured)->iteration_s(prefill_batch(1, 500)), 2);
    EXPECT_EQ((*measured)->coverage(prefill_batch(1, 500)), Coverage::kMeasured);
  }
}

// Given degrees beyond the measured ones, or another accelerator; expects an error that lists the existing ones.
TEST(ProfileParallelism, SaysNothingBeyond) {
  const auto rows = rows_at({2, 8});
  for (const ProfileKey& key : {ProfileKey{"m", "gpu", 1}, ProfileKey{"m", "gpu", 16}, ProfileKey{"m", "other", 4}}) {
    const auto model = profile_model(rows, key, ProfileReading::kBatchTokens, 1000);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
    EXPECT_NE(model.error().message.find("m on gpu with tensor parallel degree 8"), std::string::npos) << model.error().message;
  }
}

}  // namespace
}  // namespace windlass::planner
