// Tests that shared prefixes follow Zipf's law, are part of the prompt, and change nothing else.
#include "planner/workload/shared_prefixes.h"

#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "planner/workload/composed_source.h"
#include "tests/unit/planner/workload/statistics.h"

namespace windlass::workload {
namespace {

std::unique_ptr<RequestSource> plain() {
  auto lengths = LengthDistribution::independent(UniformTokens{1, 200}, FixedTokens{5}, std::nullopt);
  auto arrivals = make_arrivals(PoissonArrivals{10}, 3, "requests");
  EXPECT_TRUE(lengths.ok() && arrivals.ok());
  return std::make_unique<ComposedSource>(std::move(arrivals).value(), std::move(lengths).value(), 3, "requests");
}

// Given 1, 5 and 40 prefixes with several exponents; expects each as often as its probability (chi-square).
TEST(SharedPrefixes, FollowZipf) {
  for (const SharedPrefixes& prefixes : {SharedPrefixes{1, 50, 1}, SharedPrefixes{5, 50, 0}, SharedPrefixes{5, 50, 1},
                                         SharedPrefixes{40, 50, 0.7}, SharedPrefixes{5, 50, 2.5}}) {
    PrefixedSource source(plain(), prefixes, 7, "requests");
    constexpr int kDraws = 100'000;
    std::vector<double> seen(static_cast<std::size_t>(prefixes.count)), expected;
    for (int i = 0; i < kDraws; ++i) ++seen.at(static_cast<std::size_t>(source.next()->prefix));
    double all = 0;
    for (int k = 1; k <= prefixes.count; ++k) all += std::pow(k, -prefixes.zipf);
    for (int k = 1; k <= prefixes.count; ++k) expected.push_back(kDraws * std::pow(k, -prefixes.zipf) / all);
    if (prefixes.count == 1) {
      EXPECT_EQ(seen[0], kDraws);
    } else {
      expect_chi_square(seen, expected);
    }
  }
}

// Given a source with and without prefixes; expects the same arrivals and lengths, a prefix never longer than its prompt, and
// the requested length if the prompt is longer.
TEST(SharedPrefixes, ChangeNothingElse) {
  const auto alone = plain();
  PrefixedSource source(plain(), {8, 50, 1}, 7, "requests");
  for (int i = 0; i < 10'000; ++i) {
    const auto with = source.next(), without = alone->next();
    ASSERT_EQ(with->arrival_s, without->arrival_s);
    ASSERT_EQ(with->input_tokens, without->input_tokens);
    ASSERT_EQ(with->output_tokens, without->output_tokens);
    ASSERT_EQ(with->prefix_tokens, std::min(50, with->input_tokens));
    ASSERT_EQ(without->prefix, -1);
  }
}

// Given a source that ends; expects this one to end too.
TEST(SharedPrefixes, EndWithTheirSource) {
  PrefixedSource source(std::make_unique<MergedSource>(std::vector<MergedSource::Part>{}), {8, 50, 1}, 7, "requests");
  EXPECT_FALSE(source.next().has_value());
}

}  // namespace
}  // namespace windlass::workload
