// Which target each path of the worker has.
#include "worker/serve/target.h"

#include <gtest/gtest.h>

namespace windlass::worker {
namespace {

// Given paths, similar ones and prefixes; expects the target of each, with only its own methods.
TEST(Target, HasItsPathAndMethods) {
  EXPECT_EQ(target_of("/v1/completions"), Target::kGenerate);
  EXPECT_EQ(target_of("/v1/completions/"), Target::kUnknown);
  EXPECT_EQ(target_of("/v1/models"), Target::kModels);
  EXPECT_EQ(target_of("/v1/models/a/b"), Target::kModel);
  EXPECT_EQ(target_of("/kv/1"), Target::kKv);
  EXPECT_EQ(target_of("/kv"), Target::kUnknown);
  EXPECT_EQ(target_of("/chain/step"), Target::kChain);
  EXPECT_EQ(target_of("/chain/other"), Target::kUnknown);
  EXPECT_TRUE(allows(Target::kGenerate, "POST"));
  EXPECT_FALSE(allows(Target::kGenerate, "GET"));
  EXPECT_TRUE(allows(Target::kBlocks, "GET"));
  EXPECT_TRUE(allows(Target::kBlocks, "POST"));
  EXPECT_FALSE(allows(Target::kBlocks, "GET, POST, PUT"));
  EXPECT_FALSE(allows(Target::kBlocks, "PUT"));
  EXPECT_FALSE(allows(Target::kHealth, "HEAD"));
}

}  // namespace
}  // namespace windlass::worker
