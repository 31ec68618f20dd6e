// Fine bins of latencies: their percentiles compared with exact ones, sums and differences, and malformed pages or pages
// without bins.
#include "metrics/latency_bins.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metrics/counter_tracker.h"

namespace windlass::metrics {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string page_of(const std::vector<double>& seconds, const std::string& model = "tiny") {
  LatencyBins bins;
  for (const double one : seconds) bins.observe(one);
  std::string page;
  bins.write(page, kGatewayTpot, model);
  return page;
}

Result<SeenLatencies> seen_on(const std::string& text, const std::map<std::string, std::string>& match = {}) {
  const auto page = parse_exposition(text);
  if (!page.ok()) return page.error();
  return read_latencies(*page, kGatewayTpot, match);
}

SeenLatencies seen(const std::vector<double>& seconds) { return seen_on(page_of(seconds)).value(); }

double exact(std::vector<double> seconds, double percent) {
  std::sort(seconds.begin(), seconds.end());
  const auto rank = static_cast<std::size_t>(std::ceil(percent * static_cast<double>(seconds.size()) / 100));
  return seconds[std::max<std::size_t>(rank, 1) - 1];
}

// Given seeded samples of five distributions from microseconds to hours, written to a page and read back; expects every
// percentile to be a value within 2 % of the exact one.
TEST(LatencyBins, EveryPercentileIsWithinTwoPercent) {
  std::mt19937_64 random(20261128);
  std::lognormal_distribution<double> tokens(std::log(0.0017), 0.3), overload(std::log(3), 1);
  std::exponential_distribution<double> waits(2);
  std::uniform_real_distribution<double> even(0.001, 30), magnitude(-5.9, 4.5);
  const std::vector<std::function<double()>> draws = {[&] { return tokens(random); }, [&] { return overload(random); },
                                                      [&] { return 1e-5 + waits(random); }, [&] { return even(random); },
                                                      [&] { return std::pow(10, magnitude(random)); }};
  for (int round = 0; round < 200; ++round) {
    for (std::size_t kind = 0; kind < draws.size(); ++kind) {
      std::vector<double> samples(1 + random() % 300);
      for (double& one : samples) one = draws[kind]();
      const LatencyCounts counts = seen(samples).counts;
      ASSERT_EQ(counts.total(), samples.size());
      for (const double percent : {1.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0}) {
        const auto found = counts.percentile(percent);
        ASSERT_TRUE(found);
        const double truth = exact(samples, percent);
        EXPECT_EQ(found->bound, Bound::kNone);
        EXPECT_NEAR(found->seconds / truth, 1, 0.02) << "round " << round << " kind " << kind << " p" << percent;
      }
    }
  }
}

// Given an overload whose slowest request took 12.6 s and whose others took at least 0.2 s; expects P95 and P99 to match the
// client's to 2 %, and nothing above its maximum by more. A histogram with buckets at 10 s and 20 s gives only "less than 20
// s".
TEST(LatencyBins, AnOverloadShowsNoLatencyAboveItsMaximum) {
  std::vector<double> client;
  for (int i = 0; i < 120; ++i) client.push_back(0.2 + (12.6 - 0.2) * i / 119);
  const LatencyCounts counts = seen(client).counts;
  for (const double percent : {50.0, 95.0, 99.0, 100.0})
    EXPECT_NEAR(counts.percentile(percent)->seconds / exact(client, percent), 1, 0.02) << percent;
  EXPECT_LE(counts.percentile(99)->seconds, 12.6 * 1.02);
  HistogramSnapshot histogram{{5, 10, 20, kInf}, {0, 0, 0, 0}, 0};
  for (std::size_t i = 0; i < histogram.bounds.size(); ++i) {
    for (const double one : client) histogram.counts[i] += one <= histogram.bounds[i] ? 1 : 0;
  }
  EXPECT_EQ(LatencyCounts::of(histogram).percentile(95), (Percentile{20, Bound::kBelow}));
}

// Given no latency, a NaN, and some outside the range of bins; expects no percentile for the first two, and a bound for the
// others.
TEST(LatencyBins, ValuesOutsideTheBinsGiveABound) {
  EXPECT_FALSE(seen({}).counts.percentile(95));
  EXPECT_EQ(page_of({}), "windlass_gateway_tpot_bins{model=\"tiny\"} 0\n");
  EXPECT_FALSE(seen({std::nan("")}).counts.percentile(95));
  for (const double tiny : {-1.0, 0.0, 1e-9}) {
    const auto found = seen({tiny}).counts.percentile(95);
    EXPECT_EQ(found->bound, Bound::kBelow);
    EXPECT_NEAR(found->seconds, 1e-6, 1e-7);
  }
  const auto ages = seen({1e7}).counts.percentile(95);
  EXPECT_EQ(ages->bound, Bound::kAbove);
  EXPECT_GT(ages->seconds, 80000);
  EXPECT_EQ(seen({kInf}).counts, seen({1e7}).counts);
}

// Given a histogram's buckets; expects a percentile to be a bound: below the upper end of its bucket, above the last finite
// one, and a value only for a narrow bucket.
TEST(LatencyCounts, ABucketGivesABound) {
  const auto of = [](std::vector<double> counts) {
    return LatencyCounts::of(HistogramSnapshot{{0.01, 0.0104, 1, kInf}, std::move(counts), 0});
  };
  EXPECT_EQ(of({20, 20, 20, 20}).percentile(95), (Percentile{0.01, Bound::kBelow}));
  EXPECT_EQ(of({0, 0, 20, 20}).percentile(95), (Percentile{1, Bound::kBelow}));
  EXPECT_EQ(of({0, 0, 0, 20}).percentile(95), (Percentile{1, Bound::kAbove}));
  const auto narrow = of({0, 20, 20, 20}).percentile(95);
  EXPECT_EQ(narrow->bound, Bound::kNone);
  EXPECT_NEAR(narrow->seconds, 0.0102, 0.0001);
  EXPECT_FALSE(of({0, 0, 0, 0}).percentile(95));
  EXPECT_FALSE(of({1, 1, 1, 1}).percentile(101));
  EXPECT_FALSE(of({1, 1, 1, 1}).percentile(std::nan("")));
}

// Given the bins of one gateway and the buckets of another, older one, over 500 seeded rounds; expects the percentile of their
// sum to be true of the exact data of both.
TEST(LatencyCounts, ASumOfBinsAndBucketsBoundsTheExactPercentile) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> draw(std::log(0.05), 1.5);
  const std::vector<double> bounds = {0.01, 0.1, 1, kInf};
  int values = 0, limits = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<double> fine(random() % 60), coarse(1 + random() % 20);
    HistogramSnapshot histogram{bounds, std::vector<double>(bounds.size(), 0), 0};
    for (double& one : fine) one = draw(random);
    for (double& one : coarse) {
      one = draw(random);
      for (std::size_t i = 0; i < bounds.size(); ++i) histogram.counts[i] += one <= bounds[i] ? 1 : 0;
    }
    LatencyCounts sum = seen(fine).counts;
    sum.add(LatencyCounts::of(histogram));
    std::vector<double> all = fine;
    all.insert(all.end(), coarse.begin(), coarse.end());
    ASSERT_EQ(sum.total(), all.size());
    const double percent = 1.0 + static_cast<double>(random() % 99), truth = exact(all, percent);
    const auto found = sum.percentile(percent);
    ASSERT_TRUE(found);
    if (found->bound == Bound::kBelow) {
      EXPECT_LE(truth, found->seconds * 1.00001);
    } else if (found->bound == Bound::kAbove) {
      EXPECT_GE(truth, found->seconds * 0.99999);
    } else {
      EXPECT_NEAR(found->seconds / truth, 1, 0.05);
    }
    ++(found->bound == Bound::kNone ? values : limits);
  }
  EXPECT_GT(values, 20);
  EXPECT_GT(limits, 20);
}

// Given two halves of 500 samples; expects their bins to add up to those of all, and all minus one half to be the other.
TEST(LatencyCounts, SumsAndDifferencesAreExact) {
  std::mt19937_64 random(11);
  std::exponential_distribution<double> draw(1);
  std::vector<double> first, second, all;
  for (int i = 0; i < 500; ++i) {
    all.push_back(draw(random));
    (i % 3 == 0 ? first : second).push_back(all.back());
  }
  LatencyCounts sum = seen(first).counts;
  sum.add(seen(second).counts);
  EXPECT_EQ(sum, seen(all).counts);
  EXPECT_EQ(sum.since(seen(first).counts), seen(second).counts);
  EXPECT_FALSE(seen(first).counts.since(sum));
  EXPECT_FALSE(seen(first).counts.since(seen({1e4}).counts));
  EXPECT_EQ(sum.since(sum), LatencyCounts{});
}

// Given pages with invalid bin ends, invalid counts, overlapping bins, and cut pages; expects an error with the series, never
// fewer latencies.
TEST(LatencyPage, MalformedPagesAreErrors) {
  const auto bin = [](const std::string& labels, const std::string& count) {
    return "windlass_gateway_tpot_bin{model=\"tiny\"" + labels + "} " + count + "\n";
  };
  const std::string bins = "windlass_gateway_tpot_bins{model=\"tiny\"} ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {bin(",le=\"2\"", "1") + bins + "1\n", "gt and le"},
      {bin(",gt=\"1\"", "1") + bins + "1\n", "gt and le"},
      {bin(",gt=\"1\",le=\"1\"", "1") + bins + "1\n", "gt and le"},
      {bin(",gt=\"-1\",le=\"1\"", "1") + bins + "1\n", "gt and le"},
      {bin(",gt=\"NaN\",le=\"1\"", "1") + bins + "1\n", "gt and le"},
      {bin(",gt=\"1\",le=\"two\"", "1") + bins + "1\n", "gt and le"},
      {bin(",gt=\"1\",le=\"2 3\"", "1") + bins + "1\n", "gt and le"},
      {bin(",gt=\"1\",le=\"2\"", "-1") + bins + "-1\n", "must be a count"},
      {bin(",gt=\"1\",le=\"2\"", "NaN") + bins + "1\n", "must be a count"},
      {bin(",gt=\"1\",le=\"2\"", "+Inf") + bins + "+Inf\n", "must be a count"},
      {bin(",gt=\"1\",le=\"2\"", "1") + bin(",gt=\"1\",le=\"2\"", "1") + bins + "2\n", "overlap"},
      {bin(",gt=\"1\",le=\"2\"", "1") + bin(",gt=\"1.5\",le=\"3\"", "1") + bins + "2\n", "overlap"},
      {bins + "3\n", "sum of the bins"},
      {bins + "NaN\n", "sum of the bins"},
  };
  for (const auto& [text, expected] : cases) {
    const auto found = seen_on(text);
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(found.error().message, HasSubstr(expected)) << text;
    EXPECT_THAT(found.error().message, HasSubstr("windlass_gateway_tpot_bin")) << text;
  }
  EXPECT_EQ(seen_on("windlass_gateway_queue_length 1\n").error().code, ErrorCode::kNotFound);
  // A whole page without any one of its lines.
  const std::string whole = page_of({0.001, 0.002, 0.004, 0.004});
  for (std::size_t begin = 0; begin < whole.size(); begin = whole.find('\n', begin) + 1) {
    std::string cut = whole;
    cut.erase(begin, cut.find('\n', begin) + 1 - begin);
    const auto found = seen_on(cut);
    EXPECT_FALSE(found.ok()) << cut;
  }
}

// Given a page with two models, one whose name needs quoting; expects each to be read separately, and both to add up.
TEST(LatencyPage, ModelsAreReadSeparately) {
  const std::string odd = "a \"b\" \\ c\nd", text = page_of({0.001, 0.001}) + page_of({1}, odd);
  EXPECT_EQ(seen_on(text, {{"model", "tiny"}})->counts, seen({0.001, 0.001}).counts);
  EXPECT_EQ(seen_on(text, {{"model", odd}})->counts, seen({1}).counts);
  EXPECT_EQ(seen_on(text)->counts.total(), 3);
}

// Given a gateway's two pages; expects only the bins of /latencies to be taken, and the histogram of a gateway without them to
// be read.
TEST(LatencyPage, BinsTakePrecedenceOverBuckets) {
  const std::string metrics =
      "windlass_gateway_requests_started_total{model=\"tiny\"} 1\n"
      "windlass_gateway_time_per_output_token_seconds_bucket{model=\"tiny\",le=\"0.01\"} 1\n"
      "windlass_gateway_time_per_output_token_seconds_bucket{model=\"tiny\",le=\"+Inf\"} 1\n";
  Exposition page = parse_exposition(metrics).value();
  auto found = read_latencies(page, kGatewayTpot);
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->fine);
  EXPECT_EQ(found->counts.percentile(95), (Percentile{0.01, Bound::kBelow}));
  add_latency_bins(page, parse_exposition(metrics + page_of({0.0017})).value());
  EXPECT_EQ(page.sum("windlass_gateway_requests_started_total"), 1);
  found = read_latencies(page, kGatewayTpot);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->fine);
  EXPECT_NEAR(found->counts.percentile(95)->seconds, 0.0017, 0.0017 * 0.02);
}

std::vector<double> times(int count, double seconds) { return std::vector<double>(static_cast<std::size_t>(count), seconds); }
std::vector<double> both(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Given cumulative bins whose newest part is slow; expects the window's percentile to see only that part, and nothing from
// before the first reading.
TEST(LatencyTracker, ThePercentileOfTheWindow) {
  LatencyTracker tracker;
  const auto p95 = [&](double now_s) {
    const auto window = tracker.increase(now_s, 60);
    return window ? window->percentile(95) : std::nullopt;
  };
  const auto fast = times(1000, 0.02), slow = times(10, 2);
  tracker.observe(0, seen(fast));
  EXPECT_FALSE(tracker.increase(0, 60));
  tracker.observe(60, seen(both(fast, fast)));
  EXPECT_NEAR(p95(60)->seconds, 0.02, 0.0004);
  tracker.observe(120, seen(both(both(fast, fast), slow)));
  EXPECT_NEAR(p95(120)->seconds, 2, 0.04);
  EXPECT_EQ(tracker.increase(120, 120)->total(), 1010);
  tracker.observe(180, seen(both(both(fast, fast), slow)));
  EXPECT_TRUE(tracker.increase(180, 60)->empty());
  EXPECT_FALSE(p95(180));
  EXPECT_EQ(tracker.last_reading_s(), 180);
}

// Given a gateway that restarts, seen as falling counts, a new start time, or missing bins; expects the new run to count in
// full, nothing negative, and nothing counted twice.
TEST(LatencyTracker, ANewRunCountsInFull) {
  LatencyTracker tracker;
  tracker.observe(0, seen(times(10, 0.02)), 1.0);
  tracker.observe(10, seen(times(15, 0.02)), 1.0);
  tracker.observe(20, seen(times(4, 0.02)), 1.0);
  EXPECT_EQ(tracker.increase(20, 60)->total(), 9);
  tracker.observe(30, seen(times(9, 0.02)), 25.0);
  EXPECT_EQ(tracker.increase(30, 60)->total(), 18);
  tracker.observe(40, seen(times(3, 1)), 25.0);
  EXPECT_EQ(tracker.increase(40, 60)->total(), 21);
  tracker.observe(50, seen({}), 45.0);
  tracker.observe(60, seen(times(2, 1)), 45.0);
  EXPECT_EQ(tracker.increase(60, 60)->total(), 23);
  EXPECT_EQ(tracker.resets(), 4);
}

// Given a page with bins that fails once, an old gateway that is upgraded, and one that is downgraded; expects bins and buckets
// never to mix within a run, and another run to count in full.
TEST(LatencyTracker, BinsAndBucketsDoNotMix) {
  const auto buckets = [](double count) {
    return SeenLatencies{LatencyCounts::of(HistogramSnapshot{{1, kInf}, {count, count}, 0}), false};
  };
  LatencyTracker tracker;
  tracker.observe(0, buckets(5), 1.0);
  tracker.observe(10, buckets(8), 1.0);
  EXPECT_EQ(tracker.increase(10, 60)->percentile(95), (Percentile{1, Bound::kBelow}));
  tracker.observe(20, seen(times(8, 0.02)), 1.0);  // its first page with bins: a baseline
  EXPECT_FALSE(tracker.increase(20, 60));
  tracker.observe(30, buckets(9), 1.0);  // that page failed
  EXPECT_EQ(tracker.last_reading_s(), 20);
  tracker.observe(40, seen(times(10, 0.02)), 1.0);
  EXPECT_EQ(tracker.increase(40, 60)->total(), 2);
  tracker.observe(50, buckets(3), 45.0);
  EXPECT_EQ(tracker.increase(50, 60)->total(), 5);
}

// Given a series that is absent, then appears; expects its first latencies to count. A malformed page is no reading.
TEST(LatencyTracker, CountsAppearingSeriesAndSkipsMalformedPages) {
  LatencyTracker tracker;
  tracker.take(0, Error{ErrorCode::kNotFound, ""}, 1.0);
  tracker.take(10, seen(times(3, 0.02)), 1.0);
  EXPECT_EQ(tracker.increase(10, 60)->total(), 3);
  tracker.take(20, Error{ErrorCode::kInvalidArgument, ""}, 1.0);
  tracker.take(30, Error{ErrorCode::kNotFound, ""}, 1.0);
  EXPECT_EQ(tracker.last_reading_s(), 10);
  tracker.take(40, seen(times(4, 0.02)), 1.0);
  EXPECT_EQ(tracker.increase(40, 60)->total(), 4);
}

}  // namespace
}  // namespace windlass::metrics
