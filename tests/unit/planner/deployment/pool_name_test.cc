// Names of pools.
#include "planner/deployment/pool_name.h"

#include <string>

#include <gtest/gtest.h>

namespace windlass::planner {
namespace {

using dispatch::Role;

// Given class names of all kinds, expect DNS labels of at most 30 characters.
TEST(PoolName, IsADnsLabel) {
  EXPECT_EQ(pool_name("h100", 8), "h100-8");
  EXPECT_EQ(pool_name("NVIDIA.H100_SXM", 2), "nvidia-h100-sxm-2");
  EXPECT_EQ(pool_name(std::string(80, 'x'), 16), std::string(27, 'x') + "-16");
  EXPECT_EQ(pool_name("..", 1), "pool-1");
}

// Given pools of one name, expects people to be told their roles.
TEST(PoolName, IsTitledWithItsRole) {
  EXPECT_EQ(title({"h100-2", Role::kUnified}), "h100-2");
  EXPECT_EQ(title({"h100-2", Role::kPrefill}), "h100-2 (prefill)");
}

// Given names as versions until 2026-11-28 wrote them, expects today's names and the role; and where accelerator and GPUs are
// known, the whole of a name that was cut earlier. Names of today stay.
TEST(PoolName, OfFormerVersionsLosesItsRole) {
  EXPECT_EQ(former_pool_name("h100", 2, Role::kPrefill), "h100-2-prefill");
  EXPECT_EQ(pool_of_name("h100-2-prefill"), (PoolId{"h100-2", Role::kPrefill}));
  EXPECT_EQ(pool_of_name("h100-2-decode", "h100", 2), (PoolId{"h100-2", Role::kDecode}));
  EXPECT_EQ(pool_of_name("h100-2"), PoolId{"h100-2"});
  EXPECT_EQ(pool_of_name("prefill-2", "prefill", 2), PoolId{"prefill-2"});
  EXPECT_EQ(pool_of_name(""), PoolId{""});
  const std::string longer(25, 'x');
  const std::string former = former_pool_name(longer, 2, Role::kPrefill);
  EXPECT_EQ(former, std::string(20, 'x') + "-2-prefill");
  EXPECT_EQ(pool_of_name(former, longer, 2).name, pool_name(longer, 2));
}

}  // namespace
}  // namespace windlass::planner
