// Tests Huawei's min-max mapping against the best of all mappings, on small bursts.
#include "tests/bench/heterogeneous/huawei_mapping.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/effort.h"

namespace windlass::bench {
namespace {

// Given 500 bursts of up to seven requests on up to three heterogeneous instances; expects the policy's largest load never to
// be below the best mapping's, at most the number of instances times it if loads do not grow with the cache (greedy scheduling
// on unrelated machines: Aspnes et al. 1997), equal to it in most cases, and within a fifth of it on average.
TEST(HuaweiMapping, IsNearTheBestOfAll) {
  double ratios = 0, flat_ratios = 0;
  int equal = 0;
  constexpr int kCases = 500;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE(seed);
    const MappingCase made = random_mapping_case(seed, 3, 7, 2);
    const double ratio = mapped_load(made) / least_load(made);
    ASSERT_GE(ratio, 1 - 1e-9);
    ratios += ratio;
    equal += ratio < 1 + 1e-9 ? 1 : 0;
    const MappingCase flat = random_mapping_case(seed, 3, 7, 0);
    const double flat_ratio = mapped_load(flat) / least_load(flat);
    ASSERT_GE(flat_ratio, 1 - 1e-9);
    ASSERT_LE(flat_ratio, static_cast<double>(flat.instances.size()) + 1e-9);
    flat_ratios += flat_ratio;
  }
  EXPECT_GT(equal, kCases / 4);
  EXPECT_LT(ratios / kCases, 1.2);
  EXPECT_LT(flat_ratios / kCases, 1.2);
}

// Given one request; expects the instance where it adds least, which is the best mapping.
TEST(HuaweiMapping, IsTheBestForOne) {
  for (std::uint64_t seed = 1; seed <= effort(25U, 100U); ++seed) {
    MappingCase made = random_mapping_case(seed, 4, 4, 2);
    made.requests.resize(1);
    EXPECT_DOUBLE_EQ(mapped_load(made), least_load(made)) << seed;
  }
}

}  // namespace
}  // namespace windlass::bench
