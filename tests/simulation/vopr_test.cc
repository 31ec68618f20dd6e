// Seeds of the whole-system simulation, in batches that run in parallel, and every seed that once found a fault. `scripts/bench
// vopr` runs many more; docs/simulation-tests.md says what is checked and how to repeat one seed.
#include "tests/simulation/vopr.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "tests/effort.h"
#include "tests/paths.h"

namespace windlass::simulation {
namespace {

constexpr int kLots = 20;
constexpr int kSeedsALot = 25;
constexpr int kRegressionLots = 4;

// Known faults that are not fixed yet, from open.txt.
std::map<std::uint64_t, std::string> open_faults() {
  std::map<std::uint64_t, std::string> faults;
  std::ifstream file(source_path("/tests/simulation/open.txt"));
  EXPECT_TRUE(file);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::uint64_t seed = 0;
    std::string check;
    EXPECT_TRUE(std::istringstream(line) >> seed >> check) << line;
    faults[seed] = check;
  }
  return faults;
}

class Vopr : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
};

// Given a batch of seeds, each with its own cluster, services, load and faults; expects no invariant to be violated, and each
// world to come to rest once its faults stop. A seed of open.txt breaks the check named there and no other; one that no longer
// does belongs in regressions.txt.
TEST_P(Vopr, KeepsItsPromisesAndComesToRest) {
  const std::map<std::uint64_t, std::string> open = open_faults();
  for (int i = 0; i < effort(5, kSeedsALot); ++i) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * kSeedsALot + i + 1);
    SeedResult result = run_seed(seed);
    if (const auto known = open.find(seed); known != open.end()) {
      const auto broken = std::erase_if(result.violations, [&](const Violation& one) { return one.check == known->second; });
      EXPECT_GT(broken, 0U) << "seed " << seed << " no longer breaks " << known->second;
    }
    EXPECT_EQ(describe(result), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Lots, Vopr, testing::Range(0, kLots));

class VoprRegressions : public Vopr {};

// Given every seed of regressions.txt, spread over the batches; expects none to fail again.
TEST_P(VoprRegressions, StayMended) {
  std::ifstream file(source_path("/tests/simulation/regressions.txt"));
  ASSERT_TRUE(file);
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::uint64_t seed = 0;
    ASSERT_TRUE(std::istringstream(line) >> seed) << line;
    if (count++ % kRegressionLots != GetParam()) continue;
    EXPECT_EQ(describe(run_seed(seed)), "") << line;
  }
  EXPECT_GT(count, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Lots, VoprRegressions, testing::Range(0, kRegressionLots));

// Given one seed, run twice, and once more with its trace; expects the same figures each time, so that a failing seed can be
// repeated.
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
