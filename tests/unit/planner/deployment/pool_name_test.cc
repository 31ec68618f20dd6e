// Names of pools.
#include "planner/deployment/pool_name.h"

#include <string>

#include <gtest/gtest.h>

namespace windlass::planner {
namespace {

// Given class names of all kinds, expect DNS labels of at most 30 characters.
TEST(PoolName, IsADnsLabel) {
  EXPECT_EQ(pool_name("h100", 8), "h100-8");
  EXPECT_EQ(pool_name("NVIDIA.H100_SXM", 2), "nvidia-h100-sxm-2");
  EXPECT_EQ(pool_name(std::string(80, 'x'), 16), std::string(27, 'x') + "-16");
  EXPECT_EQ(pool_name("..", 1), "pool-1");
}

}  // namespace
}  // namespace windlass::planner
