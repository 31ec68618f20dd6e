// Sampling: greedy, the softmax's distribution, nucleus, seeds.
#include "worker/engine/sampler.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace windlass::worker {
namespace {

std::vector<int> counts_of(Sampler& sampler, const std::vector<float>& logits, int draws) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<std::size_t>(*sampler.sample(logits))];
  return counts;
}

// Given temperature 0, the largest logit wins, the lowest id among equals, and what is not finite never does.
TEST(Sampler, Greedy) {
  Sampler sampler({0, 1, 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(*sampler.sample(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(*sampler.sample(std::vector<float>{nan, -5, nan}), 1);
  const auto damaged = sampler.sample(std::vector<float>{nan, nan});
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ErrorCode::kInternal);
}

// Given logits and a temperature, 100,000 draws follow softmax(logits / T) to within five standard deviations each.
TEST(Sampler, FollowsTheSoftmax) {
  const std::vector<float> logits{0, 1, -1, 2, 0.5};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    Sampler sampler({temperature, 1, 42});
    const int draws = 100000;
    const auto counts = counts_of(sampler, logits, draws);
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = std::exp(logits[i] / temperature) / total;
      EXPECT_NEAR(counts[i], p * draws, 5 * std::sqrt(draws * p * (1 - p)))
          << "token " << i << " at temperature " << temperature;
    }
  }
}

// Given top_p 0.6 over probabilities 0.5, 0.3, 0.15, 0.05, only the first two are drawn, in the ratio 5 to 3.
TEST(Sampler, NucleusKeepsTheMostLikely) {
  std::vector<float> logits;
  for (const double p : {0.15, 0.5, 0.05, 0.3}) logits.push_back(static_cast<float>(std::log(p)));
  Sampler sampler({1, 0.6, 7});
  const auto counts = counts_of(sampler, logits, 80000);
  EXPECT_EQ(counts[0], 0);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[1], 50000, 5 * std::sqrt(80000 * 0.625 * 0.375));
  Sampler narrow({1, 0.01, 7});
  EXPECT_EQ(counts_of(narrow, logits, 100)[1], 100);
}

// Given one seed twice and another once, draws repeat and differ.
TEST(Sampler, SeedDecides) {
  const std::vector<float> logits(50, 0.0F);
  const auto draws = [&](std::uint64_t seed) {
    Sampler sampler({1, 1, seed});
    std::vector<std::int32_t> out;
    for (int i = 0; i < 20; ++i) out.push_back(*sampler.sample(logits));
    return out;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
}

}  // namespace
}  // namespace windlass::worker
