// Seeds of the whole-system simulation, in lots that run side by side, and every seed that once found a fault. `scripts/bench
// vopr` runs many more; docs/simulation-tests.md says what is checked and how to see one seed again.
#include "tests/simulation/vopr.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

namespace windlass::simulation {
namespace {

constexpr int kLots = 20;
#if defined(__SANITIZE_ADDRESS__)
constexpr int kSeedsALot = 2;  // the sanitizer makes a seed many times slower
#else
constexpr int kSeedsALot = 25;
#endif

class Vopr : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
};

// Given: a lot of seeds, each with its own cluster, services, load and faults.
// Expected: nothing that must not happen happens, and each comes to rest once its faults stop.
TEST_P(Vopr, KeepsItsPromisesAndComesToRest) {
  for (int i = 0; i < kSeedsALot; ++i) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * kSeedsALot + i + 1);
    EXPECT_EQ(describe(run_seed(seed)), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Lots, Vopr, testing::Range(0, kLots));

// Given: every seed of regressions.txt.
// Expected: none fails again.
TEST(VoprRegressions, StayMended) {
  spdlog::set_level(spdlog::level::off);
  std::ifstream file(WINDLASS_SOURCE_DIR "/tests/simulation/regressions.txt");
  ASSERT_TRUE(file);
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::uint64_t seed = 0;
    ASSERT_TRUE(std::istringstream(line) >> seed) << line;
    EXPECT_EQ(describe(run_seed(seed)), "") << line;
    ++count;
  }
  EXPECT_GT(count, 0);
}

// Given: one seed, run twice, and once more with its trace kept.
// Expected: the same in every figure: a failing seed can be seen again.
TEST(VoprSeeds, OneSeedIsOneRun) {
  spdlog::set_level(spdlog::level::off);
  const SeedResult first = run_seed(3), second = run_seed(3), traced = run_seed(3, true);
  EXPECT_EQ(first.requests, second.requests);
  EXPECT_EQ(first.served, second.served);
  EXPECT_EQ(first.writes, second.writes);
  EXPECT_EQ(describe(first), describe(second));
  EXPECT_EQ(first.served, traced.served);
  EXPECT_EQ(first.writes, traced.writes);
  EXPECT_FALSE(traced.notes.empty());
}

}  // namespace
}  // namespace windlass::simulation
