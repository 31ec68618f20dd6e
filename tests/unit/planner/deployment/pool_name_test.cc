// Names of pools.
#include "planner/deployment/pool_name.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/deployment/deployment.h"

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

// Given workers that differ in anything; expects different names. Given the engine's default settings; expects the short name.
TEST(PoolName, NeverHidesADifference) {
  const WorkerSpec plain{"h100", 2};
  EXPECT_EQ(pool_name(plain), "h100-2");
  EXPECT_EQ(pool_name(WorkerSpec{"h100", 1, 2}), "h100-2-pp2");
  std::set<std::string> names = {pool_name(plain), pool_name(WorkerSpec{"h100", 1, 2})};
  std::vector<WorkerSpec> others(18, plain);
  others[0].engine.batching = Batching::kSarathi;
  others[1].engine.max_sequences = 64;
  others[2].engine.max_batch_tokens = 512;
  others[3].engine.block_tokens = 32;
  others[4].engine.kv_blocks = 1000;
  others[5].engine.admission_reserve = 0;
  others[6].engine.preemption = Preemption::kSwap;
  others[7].engine.host_blocks = 10;
  others[8].engine.prefix_caching = true;
  others[9].engine.prompt_order = PromptOrder::kShortestFirst;
  others[10].engine.prompt_order_window = 4;
  others[11].engine.admission = DecodeAdmission::kReserveStatic;
  others[12].engine.pads_chunks = true;
  others[13].power_share = 0.5;
  others[14].length_predictor = true;
  others[15].accelerator = std::string(80, 'x');
  others[15].power_share = 0.5;
  others[16].engine.precision = DType::kFloat8;
  others[17].engine.precision = DType::kBFloat16;
  for (const WorkerSpec& other : others) {
    const std::string name = pool_name(other);
    EXPECT_LE(name.size(), 30U);
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

// Given pools with one name; expects titles with their roles.
TEST(PoolName, IsTitledWithItsRole) {
  EXPECT_EQ(title({"h100-2", Role::kUnified}), "h100-2");
  EXPECT_EQ(title({"h100-2", Role::kPrefill}), "h100-2 (prefill)");
}

// Given names written by versions until 2026-11-28; expects today's names and the role, and the full name of a shortened one if
// accelerator and GPUs are known. Expects today's names unchanged.
TEST(PoolName, FormerNamesLoseTheirRole) {
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
