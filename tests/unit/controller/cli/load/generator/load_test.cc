// Tests the load generator's pure parts: the schedule and the summary.
#include <cmath>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/cli/load/generator/load_generator.h"
#include "controller/cli/load/generator/load_result.h"
#include "controller/cli/load/generator/schedule.h"

namespace windlass::load {
namespace {

using ::testing::HasSubstr;

// Given phases as text; expects them to parse, and an error with the rule for a bad one.
TEST(Phases, Parse) {
  EXPECT_EQ(*parse_phases("2/10s,12.5/30s,0/1m,1/500ms"), (std::vector<Phase>{{2, 10}, {12.5, 30}, {0, 60}, {1, 0.5}}));
  for (const char* bad : {"", "2", "2/", "/10s", "2/10", "-1/10s", "2/0s", "x/10s", "2/10s,", "2/-5s", "1e9/1h", "inf/1s"}) {
    auto parsed = parse_phases(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_THAT(parsed.error().message, HasSubstr("must be RATE/DURATION")) << bad;
  }
  EXPECT_THAT(parse_phases("2/10s,oops").error().message, HasSubstr("phase 2: must be RATE/DURATION"));
}

// Given constant arrivals; expects equal intervals, phase after phase.
TEST(Schedule, Constant) {
  EXPECT_EQ(arrival_times_s({{2, 1}, {0, 3}, {1, 2}}, Arrivals::kConstant, 1), (std::vector<double>{0, 0.5, 4, 5}));
}

// Given Poisson arrivals at 50 per second for 100 s and then none; expects their number within five standard deviations,
// ascending times that depend only on the seed, and gaps with the exponential distribution's mean and deviation.
TEST(Schedule, Poisson) {
  const std::vector<Phase> phases{{50, 100}, {0, 10}};
  const auto times = arrival_times_s(phases, Arrivals::kPoisson, 7);
  EXPECT_NEAR(static_cast<double>(times.size()), 5000, 5 * std::sqrt(5000));
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_LT(times.back(), 100);
  EXPECT_EQ(times, arrival_times_s(phases, Arrivals::kPoisson, 7));
  EXPECT_NE(times, arrival_times_s(phases, Arrivals::kPoisson, 8));
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    const double gap = times[i] - times[i - 1];
    sum += gap;
    squares += gap * gap;
  }
  const double n = static_cast<double>(times.size() - 1);
  const double mean = sum / n;
  EXPECT_NEAR(mean, 0.02, 0.002);
  EXPECT_NEAR(std::sqrt(squares / n - mean * mean), 0.02, 0.002);
  EXPECT_EQ(total_s(phases), 110);
}

// Given prompts of many requests; expects each to be unique and to have the requested number of words.
TEST(Schedule, PromptsAreUnique) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::string text = prompt_text(i, 32, 1);
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 31);
    EXPECT_TRUE(seen.insert(text).second);
  }
  EXPECT_EQ(prompt_text(3, 1, 1), "3:");
}

// Given records of each outcome; expects each counted once, percentiles of completed ones, and attainment over all.
TEST(Summary, Counts) {
  std::vector<RequestResult> requests(5);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].index = i;
  for (std::size_t i = 0; i < 3; ++i) {
    requests[i].outcome = Outcome::kCompleted;
    requests[i].status = 200;
    requests[i].finished_s = 1;
    requests[i].ttft_s = 0.1 * static_cast<double>(i + 1);
    requests[i].tpot_s = 0.01;
    requests[i].tokens = 10;
    requests[i].prompt_tokens = 20;
    requests[i].chain = i == 0 ? "a" : "b";
  }
  requests[2].duplicated = true;
  requests[3].outcome = Outcome::kRejected;
  requests[3].status = 429;
  requests[3].problem = "status 429: full";
  requests[3].retries = 2;
  requests[4].problem = "cannot connect: refused";
  const LoadResult result = summarise(requests, 2, 0.25, 0.05);
  EXPECT_EQ(result.sent, 5U);
  EXPECT_EQ(result.completed, 3U);
  EXPECT_EQ(result.rejected, 1U);
  EXPECT_EQ(result.lost, 1U);
  EXPECT_EQ(result.duplicated, 1U);
  EXPECT_EQ(result.retried, 1U);
  EXPECT_EQ(result.rejected_by_status.at(429), 1U);
  EXPECT_EQ(result.completed_by_chain.at("b"), 2U);
  EXPECT_DOUBLE_EQ(result.ttft_s->p50, 0.2);
  EXPECT_DOUBLE_EQ(result.ttft_s->max, 0.1 * 3);
  EXPECT_DOUBLE_EQ(*result.attainment, 0.4);
  EXPECT_DOUBLE_EQ(result.tokens_per_s, 15);
  const auto json = nlohmann::json::parse(to_json(result, true));
  EXPECT_EQ(json["lost"], 1);
  EXPECT_EQ(json["requests"].size(), 5U);
  EXPECT_EQ(json["requests"][4]["problem"], "cannot connect: refused");
  EXPECT_FALSE(nlohmann::json::parse(to_json(result)).contains("requests"));
  EXPECT_THAT(to_text(result), HasSubstr("5 sent, 3 completed, 1 rejected, 1 lost, 1 duplicated, 1 retried"));
}

// Given values; expects percentiles by nearest rank, and none for no values.
TEST(Summary, Percentiles) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(percentiles(values)->p50, 50);
  EXPECT_EQ(percentiles(values)->p95, 95);
  EXPECT_EQ(percentiles(values)->p99, 99);
  EXPECT_EQ(percentiles({3})->p95, 3);
  EXPECT_EQ(percentiles({}), std::nullopt);
}

// Given wrong options; expects an error with the value and the rule, and that nothing is sent.
TEST(RunLoad, BadOptions) {
  LoadOptions good;
  good.model = "tiny";
  good.phases = {{1, 1}};
  for (const char* url : {"127.0.0.1:80", "https://a", "http://", "http://a:0", "http://a:x", "http://a/b:80"}) {
    LoadOptions options = good;
    options.url = url;
    auto result = run_load(options);
    ASSERT_FALSE(result.ok()) << url;
    EXPECT_THAT(result.error().message, HasSubstr("url: must ")) << url;
  }
  LoadOptions options = good;
  options.model.clear();
  EXPECT_FALSE(run_load(options).ok());
  options = good;
  options.max_tokens = 0;
  EXPECT_THAT(run_load(options).error().message, HasSubstr("(got 0)"));
}

// Given an address of either family where nothing listens; expects every request to be lost with a reason, and the call to
// return.
TEST(RunLoad, NothingListens) {
  for (const char* url : {"http://127.0.0.1:1", "http://[::1]:1/"}) {
    LoadOptions options;
    options.url = url;
    options.model = "tiny";
    options.phases = {{100, 0.1}};
    options.arrivals = Arrivals::kConstant;
    const auto result = run_load(options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->sent, 10U);
    EXPECT_EQ(result->lost, 10U);
    EXPECT_THAT(result->problems.begin()->first, HasSubstr("could not connect"));
  }
}

// Given means and a spread; expects the means and the spread in what is drawn, the same for the same seed, nothing beyond the
// context, and equal lengths without a spread.
TEST(LoadLengths, SpreadAroundTheirMeans) {
  constexpr int kCount = 20'000;
  const auto drawn = request_lengths({60, 40}, 1, 2048, 7, kCount);
  ASSERT_TRUE(drawn.ok()) << drawn.error().message;
  EXPECT_EQ(*drawn, *request_lengths({60, 40}, 1, 2048, 7, kCount));
  EXPECT_NE(*drawn, *request_lengths({60, 40}, 1, 2048, 8, kCount));
  double sum = 0, squares = 0, answers = 0;
  for (const workload::TokenPair& one : *drawn) {
    sum += one.input_tokens;
    squares += static_cast<double>(one.input_tokens) * one.input_tokens;
    answers += one.output_tokens;
    EXPECT_LE(one.input_tokens + one.output_tokens, 2048);
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 60, 3);
  EXPECT_NEAR(answers / kCount, 40, 2);
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean) / mean, 1, 0.1);
  EXPECT_EQ(*request_lengths({60, 40}, 0, 0, 7, 2), (std::vector<workload::TokenPair>{{60, 40}, {60, 40}}));
  EXPECT_FALSE(request_lengths({60, 40}, 1, 1, 7, 2).ok());
}

}  // namespace
}  // namespace windlass::load
