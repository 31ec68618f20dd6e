// Tests of combining arrivals and lengths into requests, and of merging several models.
#include "planner/workload/composed_source.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "planner/workload/trace.h"
#include "tests/effort.h"
#include "tests/unit/planner/workload/statistics.h"

namespace windlass::workload {
namespace {

std::unique_ptr<ComposedSource> composed(const ArrivalSpec& spec, std::uint64_t seed, std::string_view name) {
  auto arrivals = make_arrivals(spec, seed, name);
  auto lengths = LengthDistribution::independent(UniformTokens{1, 100}, LogNormalTokens{40, 1.5});
  EXPECT_TRUE(arrivals.ok() && lengths.ok());
  return std::make_unique<ComposedSource>(std::move(arrivals).value(), *lengths, seed, name);
}

// Given arrivals and lengths; expects requests at the arrivals' times, with the lengths of their stream, and sizes of mean 1.
TEST(ComposedSource, PutsTimesAndLengthsTogether) {
  auto source = composed(PoissonArrivals{5}, 3, "a");
  const auto times_s = arrivals_before(PoissonArrivals{5}, 10'000, 3, "a");
  const auto lengths = LengthDistribution::independent(UniformTokens{1, 100}, LogNormalTokens{40, 1.5}).value();
  Rng rng(3, "a/lengths");
  std::vector<double> sizes;
  for (const double time_s : times_s) {
    const Request request = source->next().value();
    const TokenPair pair = lengths.draw(rng);
    ASSERT_EQ(request.arrival_s, time_s);
    ASSERT_EQ(request.input_tokens, pair.input_tokens);
    ASSERT_EQ(request.output_tokens, pair.output_tokens);
    EXPECT_EQ(request.model, 0);
    sizes.push_back(request.size);
  }
  const auto [mean, variance] = moments(sizes);
  EXPECT_NEAR(mean, 1, 5 * std::sqrt(variance / static_cast<double>(sizes.size())));
}

// Given other arrivals or another rate with the same seed; expects the same requests at other times. Given another name;
// expects other requests.
TEST(ComposedSource, LengthsDoNotDependOnArrivals) {
  auto poisson = composed(PoissonArrivals{5}, 3, "a"), bursty = composed(GammaArrivals{50, 3}, 3, "a");
  auto other = composed(PoissonArrivals{5}, 3, "b");
  int equal = 0;
  for (int i = 0; i < 1000; ++i) {
    const Request one = poisson->next().value(), same = bursty->next().value(), third = other->next().value();
    ASSERT_EQ(one.input_tokens, same.input_tokens);
    ASSERT_EQ(one.output_tokens, same.output_tokens);
    EXPECT_NE(one.arrival_s, same.arrival_s);
    if (one.input_tokens == third.input_tokens) ++equal;
  }
  EXPECT_LT(equal, 50);  // of 1000 with 100 lengths, about ten are equal by chance
}

// Given arrivals that end; expects the source to end with them, and to stay at the end.
TEST(ComposedSource, EndsWithItsArrivals) {
  auto source = composed(TraceArrivals{{0, 1, 4}, {}}, 3, "a");
  for (const double time_s : {0.0, 1.0, 4.0}) EXPECT_EQ(source->next().value().arrival_s, time_s);
  EXPECT_FALSE(source->next().has_value());
  EXPECT_FALSE(source->next().has_value());
}

// Given workloads of up to six models with small random traces, many rows at equal times; expects the order of a stable sort by
// time, each request with its part's model.
TEST(MergedSource, AgreesWithASort) {
  Rng rng(4, "parts");
  for (int i = 0; i < effort(200, 2000); ++i) {
    std::vector<MergedSource::Part> parts;
    std::vector<std::tuple<double, int, int>> expected;  // time, model, tokens
    const auto count = rng.integer(0, 6);
    for (int part = 0; part < count; ++part) {
      const int model = static_cast<int>(rng.integer(0, 3));
      std::vector<TraceRow> rows(static_cast<std::size_t>(rng.integer(0, 8)));
      for (TraceRow& row : rows) {
        row = {static_cast<double>(rng.integer(0, 9)), static_cast<int>(rng.integer(1, 1000)), 1};
      }
      std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.arrival_s < b.arrival_s; });
      for (const TraceRow& row : rows) expected.emplace_back(row.arrival_s, model, row.input_tokens);
      parts.push_back({std::make_unique<TraceSource>(rows), model});
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
    MergedSource merged(std::move(parts));
    for (const auto& [time_s, model, tokens] : expected) {
      const auto request = merged.next();
      ASSERT_TRUE(request.has_value());
      ASSERT_EQ(std::tuple(request->arrival_s, request->model, request->input_tokens), std::tuple(time_s, model, tokens));
    }
    ASSERT_FALSE(merged.next().has_value());
    ASSERT_FALSE(merged.next().has_value());
  }
}

// Given three endless models with one seed; expects each to get the share of its rate, and the times that it has alone.
TEST(MergedSource, ModelsKeepTheirOwnStreams) {
  std::vector<MergedSource::Part> parts;
  parts.push_back({composed(PoissonArrivals{6}, 1, "a"), 0});
  parts.push_back({composed(GammaArrivals{3, 2}, 1, "b"), 1});
  parts.push_back({composed(MarkovModulatedArrivals{{{0, 4}, {2, 4}}}, 1, "c"), 2});
  MergedSource merged(std::move(parts));
  auto alone = composed(GammaArrivals{3, 2}, 1, "b");
  std::vector<double> shares(3);
  for (int i = 0; i < 100'000; ++i) {
    const Request request = merged.next().value();
    ++shares.at(static_cast<std::size_t>(request.model));
    if (request.model != 1) continue;
    const Request same = alone->next().value();
    ASSERT_EQ(request.arrival_s, same.arrival_s);
    ASSERT_EQ(request.output_tokens, same.output_tokens);
  }
  EXPECT_NEAR(shares[0], 60'000, 1500);
  EXPECT_NEAR(shares[1], 30'000, 1500);
  EXPECT_NEAR(shares[2], 10'000, 1000);
}

}  // namespace
}  // namespace windlass::workload
