// Tests of traces replayed faster, thinned, and overlaid with copies: against the definition, evaluated on all rows.
#include "planner/workload/trace_replay.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/workload/trace.h"
#include "tests/effort.h"
#include "tests/paths.h"

namespace windlass::workload {
namespace {

using ::testing::HasSubstr;
using Arrivals = std::vector<TraceReplay::Arrival>;

Arrivals all(TraceReplay replay) {
  Arrivals arrivals;
  while (const auto arrival = replay.next()) arrivals.push_back(*arrival);
  EXPECT_FALSE(replay.next().has_value());
  return arrivals;
}

std::vector<double> random_times(Rng& rng) {
  std::vector<double> times_s(static_cast<std::size_t>(rng.integer(1, 12)));
  for (double& time_s : times_s) time_s = static_cast<double>(rng.integer(0, 20)) / 4;
  std::sort(times_s.begin(), times_s.end());
  return times_s;
}

// Given small traces, some with rows at equal times, and any speed; expects a rate of 1 to replay every row in order at its
// time divided by the speed.
TEST(TraceReplay, RateOneReplaysTheTrace) {
  Rng rng(1, "traces");
  for (int i = 0; i < effort(300, 3000); ++i) {
    const auto times_s = random_times(rng);
    const double speed = static_cast<double>(rng.integer(1, 8)) / 2;
    const auto arrivals = all(TraceReplay(times_s, {speed, 1}, 7, "a"));
    ASSERT_EQ(arrivals.size(), times_s.size());
    for (std::size_t k = 0; k < arrivals.size(); ++k) {
      EXPECT_EQ(arrivals[k].row, k);
      EXPECT_EQ(arrivals[k].time_s, times_s[k] / speed);
    }
  }
}

// Given small traces and rates up to 6; expects the definition with the same draws: each whole copy is every row, moved by the
// copy's shift around the circle; the last copy is a subset of such rows; all sorted by time.
TEST(TraceReplay, AgreesWithTheDefinition) {
  Rng rng(2, "traces");
  for (int i = 0; i < effort(300, 3000); ++i) {
    const auto times_s = random_times(rng);
    const double rate = static_cast<double>(rng.integer(1, 24)) / 4;
    const auto seed = static_cast<std::uint64_t>(i);
    const auto arrivals = all(TraceReplay(times_s, {2, rate}, seed, "a"));
    const double period_s = TraceReplay::period_s(times_s);
    // The first draws of the stream are the shifts of all copies except the first.
    Rng same(seed, "a/trace");
    const auto copies = static_cast<std::size_t>(std::ceil(rate));
    std::vector<std::pair<double, std::size_t>> whole, rest;
    for (std::size_t copy = 0; copy < copies; ++copy) {
      const double shift_s = copy == 0 ? 0 : same.uniform(0, period_s);
      auto& into = static_cast<double>(copy + 1) <= rate ? whole : rest;
      for (std::size_t row = 0; row < times_s.size(); ++row) {
        double time_s = times_s[row] + shift_s;
        if (time_s - times_s.front() >= period_s && period_s > 0) time_s -= period_s;
        into.emplace_back(time_s / 2, row);
      }
    }
    ASSERT_GE(arrivals.size(), whole.size());
    ASSERT_LE(arrivals.size(), whole.size() + rest.size());
    const auto take = [](std::vector<std::pair<double, std::size_t>>& from, const TraceReplay::Arrival& arrival) {
      const auto found = std::find_if(from.begin(), from.end(), [&](const auto& one) {
        return one.second == arrival.row && std::abs(one.first - arrival.time_s) < 1e-9;
      });
      if (found == from.end()) return false;
      from.erase(found);
      return true;
    };
    double last_s = 0;
    for (const auto& arrival : arrivals) {
      ASSERT_GE(arrival.time_s, last_s);
      last_s = arrival.time_s;
      ASSERT_TRUE(take(whole, arrival) || take(rest, arrival)) << arrival.row << " at " << arrival.time_s;
    }
    EXPECT_TRUE(whole.empty());
  }
}

// Given 20,000 seeds and rates with a fraction; expects rate * rows arrivals on average, every row equally often, and the
// binomial variance of the thinned copy.
TEST(TraceReplay, RateIsExactOnAverage) {
  const std::vector<double> times_s = {0, 0.5, 4, 4, 9};
  for (const double rate : {0.3, 1.0, 2.6}) {
    SCOPED_TRACE(rate);
    constexpr int kSeeds = 20'000;
    double sum = 0, squares = 0;
    std::vector<double> rows(times_s.size());
    for (int seed = 0; seed < kSeeds; ++seed) {
      const auto arrivals = all(TraceReplay(times_s, {1, rate}, static_cast<std::uint64_t>(seed), "a"));
      const auto count = static_cast<double>(arrivals.size());
      sum += count;
      squares += count * count;
      for (const auto& arrival : arrivals) ++rows[arrival.row];
    }
    const double rest = rate - std::floor(rate);
    const double variance = 5 * rest * (1 - rest);
    EXPECT_NEAR(sum / kSeeds, 5 * rate, 4 * std::sqrt(variance / kSeeds) + 1e-12);
    EXPECT_NEAR(squares / kSeeds - sum / kSeeds * sum / kSeeds, variance, 0.05 * variance + 1e-6);
    for (const double row : rows) EXPECT_NEAR(row / kSeeds, rate, 4 * std::sqrt(rest * (1 - rest) / kSeeds) + 1e-12);
  }
}

// Given a trace whose rows are concentrated at its start; expects the shifted copies at a rate of 2,001 to fill its circle
// evenly.
TEST(TraceReplay, ShiftsAreUniform) {
  const std::vector<double> times_s = {0, 0.1, 0.2, 9};
  std::vector<double> quarters(4);
  for (const auto& arrival : all(TraceReplay(times_s, {1, 2001}, 3, "a")))
    ++quarters[static_cast<std::size_t>(arrival.time_s / 3)];
  // With 2,001 copies of four rows, each quarter has a fourth of them; three rows of a copy move together.
  for (const double quarter : quarters) EXPECT_NEAR(quarter, 2001, 4 * std::sqrt(2001 * (9 * 0.1875 + 0.1875)));
}

// Given invalid scales; expects errors by name.
TEST(TraceScaling, NamesMistakes) {
  EXPECT_TRUE((TraceScaling{2, 0.5}).validate().ok());
  for (const double bad : {0.0, -1.0, std::nan(""), 1e9}) {
    const auto speed = TraceScaling{bad, 1}.validate();
    ASSERT_FALSE(speed.ok());
    EXPECT_THAT(speed.error().message, HasSubstr("trace: time scale: must be a factor"));
    const auto rate = TraceScaling{1, bad}.validate();
    ASSERT_FALSE(rate.ok());
    EXPECT_THAT(rate.error().message, HasSubstr("trace: rate scale: must be a factor"));
  }
}

// Given rows, a speed and a rate; expects requests with the lengths of their own rows, and sizes relative to the mean of the
// rows.
TEST(TraceSource, ScaledRowsKeepTheirLengths) {
  const std::vector<TraceRow> rows = {{0, 10, 1}, {1, 20, 2}, {2, 30, 3}, {4, 1000, 1000}};
  TraceSource source(rows, 3, {2, 40}, 9, "a");
  std::map<int, int> times;
  double last_s = 0;
  while (const auto request = source.next()) {
    EXPECT_EQ(request->output_tokens * 10, request->input_tokens);
    EXPECT_DOUBLE_EQ(request->size, request->input_tokens / 20.0);
    EXPECT_GE(request->arrival_s, last_s);
    last_s = request->arrival_s;
    ++times[request->input_tokens];
  }
  EXPECT_EQ(times, (std::map<int, int>{{10, 40}, {20, 40}, {30, 40}}));
  EXPECT_LT(last_s, 1.5);
}

// Given Azure's code trace with bursty arrivals (CV 13); expects twice the speed to keep the CV and double the rate, half the
// rate to keep about half of the rows, and four times the rate to have exactly four times as many, less bursty than the trace.
TEST(TraceSource, ScalesAzuresTrace) {
  const std::filesystem::path file = source_path() + "/../shared/data/traces/AzureLLMInferenceTrace_code.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no trace " << file;
  std::ifstream stream(file, std::ios::binary);
  const auto rows = parse_azure_trace(std::string(std::istreambuf_iterator<char>(stream), {}));
  ASSERT_TRUE(rows.ok());
  const auto replayed = [&](const TraceScaling& scaling) {
    std::vector<TraceRow> result;
    TraceSource source(rows.value(), rows->size(), scaling, 4);
    while (const auto request = source.next()) {
      result.push_back({request->arrival_s, request->input_tokens, request->output_tokens});
    }
    return result;
  };
  EXPECT_EQ(replayed({1, 1}), rows.value());
  const auto faster = replayed({2, 1});
  EXPECT_NEAR(gap_cv(faster).value(), gap_cv(*rows).value(), 1e-9);
  EXPECT_NEAR(mean_rate_per_s(faster).value(), 2 * mean_rate_per_s(*rows).value(), 1e-9);
  EXPECT_NEAR(static_cast<double>(replayed({1, 0.5}).size()), 8819 / 2.0, 4 * std::sqrt(8819 / 4.0));
  const auto four = replayed({1, 4});
  EXPECT_EQ(four.size(), 4 * 8819U);
  EXPECT_LT(gap_cv(four).value(), gap_cv(*rows).value());
}

}  // namespace
}  // namespace windlass::workload
