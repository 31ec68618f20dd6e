// Tests of parsing Azure's trace format: real traces, errors by name, and mutated bytes; and of the replay.
#include "planner/workload/trace.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/paths.h"
#include "tests/says.h"
#include "tests/unit/planner/workload/mutated_text.h"

namespace windlass::workload {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

std::vector<TraceRow> parsed(const std::string& text) {
  const auto rows = parse_azure_trace(text);
  EXPECT_TRUE(rows.ok()) << rows.error().message;
  return rows.ok() ? rows.value() : std::vector<TraceRow>();
}

// Given rows with LF or CR LF, with or without a final line end; expects arrivals since the first row to the last decimal.
TEST(Trace, Reads) {
  const std::vector<TraceRow> expected = {{0, 4808, 10}, {0.052, 3180, 8}, {59.0200401, 1, 16777216}};
  const std::string text =
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
      "2023-11-16 18:17:04.0319600,3180,8\r\n2023-11-16 18:18:03.0000001,1,16777216";
  EXPECT_EQ(parsed(text), expected);
  EXPECT_EQ(parsed(text + "\r\n"), expected);
  std::string unix_ends;
  for (const char c : text) unix_ends += c == '\r' ? "" : std::string(1, c);
  EXPECT_EQ(parsed(unix_ends), expected);
  EXPECT_EQ(parsed(unix_ends + "\n"), expected);
}

// Given timestamps with any number of decimals, a UTC suffix, and across leap days and years; expects the seconds between them.
TEST(Trace, KnowsTheCalendar) {
  const auto seconds = [](const std::string& from, const std::string& to) {
    return parsed(kHeader + from + ",1,1\n" + to + ",1,1\n").at(1).arrival_s;
  };
  EXPECT_EQ(seconds("2023-12-31 23:59:59", "2024-01-01 00:00:00.5"), 1.5);
  EXPECT_EQ(seconds("2024-02-28 00:00:00", "2024-03-01 00:00:00"), 2 * 86'400);
  EXPECT_EQ(seconds("2023-02-28 00:00:00", "2023-03-01 00:00:00"), 86'400);
  EXPECT_EQ(seconds("2000-02-29 00:00:00", "2001-03-01 00:00:00"), 366 * 86'400);
  EXPECT_EQ(seconds("1970-01-01 00:00:00", "2024-05-10 00:00:00.000000001"), 1'715'299'200.000000001);
  EXPECT_EQ(seconds("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01.009930+00:00"), 1);
}

// Given a trace with an error; expects the line, the field, what was found and what is allowed.
TEST(Trace, NamesMistakes) {
  const std::string good = "2023-11-16 18:17:03.9799600,4808,10\n";
  const std::string h = kHeader;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "trace: line 1: header: must be TIMESTAMP,ContextTokens,GeneratedTokens*(got '')"},
      {"timestamp,a,b\n", "trace: line 1: header: must*(got 'timestamp,a,b')"},
      {h, "trace: line 2: row: must be at least one row*(got '')"},
      {h + "\n" + good, "trace: line 2: row: must*(got '')"},
      {h + good + "2023-11-16 18:17:04.0,5\n", "trace: line 3: row: must be TIMESTAMP,*(got '2023-11-16 18:17:04.0,5')"},
      {h + good + "2023-11-16 18:17:04.0,5,6,7\n", "trace: line 3: GeneratedTokens: must be an integer from 1*(got '6,7')"},
      {h + good + "2023-11-16 18:17:04.0,-5,6\n", "trace: line 3: ContextTokens: must*(got '-5')"},
      {h + good + "2023-11-16 18:17:04.0,0,6\n", "trace: line 3: ContextTokens: must be an integer from 1*(got '0')"},
      {h + good + "2023-11-16 18:17:04.0,5,0\n", "trace: line 3: GeneratedTokens: must*(got '0')"},
      {h + good + "2023-11-16 18:17:04.0,5,16777217\n", "trace: line 3: GeneratedTokens: must*(got '16777217')"},
      {h + good + "2023-11-16 18:17:04.0,5, 6\n", "trace: line 3: GeneratedTokens: must*(got ' 6')"},
      {h + good + "2023-11-16 18:17:04.0,5.0,6\n", "trace: line 3: ContextTokens: must*(got '5.0')"},
      {h + good + "2023-11-16 18:17:02.0,5,6\n",
       "trace: line 3: TIMESTAMP: must be a time no earlier than the line before has*(got '2023-11-16 18:17:02.0')"},
      {h + std::string(200, '\x01') + ",5,6\n", "trace: line 2: TIMESTAMP: must*(got '??????"},
  };
  for (const auto& [text, expected] : cases) {
    const auto rows = parse_azure_trace(text);
    ASSERT_FALSE(rows.ok()) << expected;
    EXPECT_THAT(rows.error().message, Says(expected));
    EXPECT_EQ(rows.error().code, ErrorCode::kInvalidArgument);
  }
  for (const char* bad :
       {"2023-13-01 00:00:00", "2023-00-01 00:00:00", "2023-02-29 00:00:00", "2023-04-31 00:00:00", "2023-01-01 24:00:00",
        "2023-01-01 00:60:00", "2023-01-01 00:00:60", "1969-12-31 23:59:59", "2023-01-01T00:00:00", "2023-01-01 00:00:00.",
        "2023-01-01 00:00:00.1234567890", "2023-01-01 00:00:00,5", "2023-01-01 00:00:00+01:00", "2023-1-01 00:00:00", "",
        "+023-01-01 00:00:00"}) {
    const auto rows = parse_azure_trace(fmt::format("{}{},1,1\n", kHeader, bad));
    ASSERT_FALSE(rows.ok()) << bad;
    EXPECT_THAT(rows.error().message, HasSubstr("trace: line 2: ")) << bad;
  }
}

// Given mutated traces; expects rows sorted by time or an error that names a line, and no crash.
TEST(Trace, SurvivesMutatedBytes) {
  Rng rng(11, "mutations");
  const std::string alphabet = "0123456789-:. ,+\r\nTx\xff";
  std::string sane = kHeader;
  for (int i = 0; i < 5; ++i) sane += fmt::format("2023-11-16 18:17:0{}.9799600,{},10\r\n", i, 100 * i + 1);
  int read = 0;
  for (int i = 0; i < effort(2000, 20'000); ++i) {
    const std::string text = mutated_text(rng, sane, alphabet);
    const auto rows = parse_azure_trace(text);
    if (!rows.ok()) {
      ASSERT_THAT(rows.error().message, StartsWith("trace: line "));
      ASSERT_EQ(rows.error().message.find('\n'), std::string::npos);
      continue;
    }
    ++read;
    ASSERT_FALSE(rows->empty());
    for (std::size_t k = 1; k < rows->size(); ++k) ASSERT_GE((*rows)[k].arrival_s, (*rows)[k - 1].arrival_s);
  }
  EXPECT_GT(read, effort(33, 500));
}

// Given Azure's traces; expects their known numbers of rows and coefficients of variation.
TEST(Trace, ReadsAzuresTraces) {
  const std::filesystem::path folder = source_path() + "/../shared/data/traces";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no traces in " << folder;
  const auto read = [&](const char* name) {
    std::ifstream file(folder / name, std::ios::binary);
    return parsed(std::string(std::istreambuf_iterator<char>(file), {}));
  };
  const auto code = read("AzureLLMInferenceTrace_code.csv");
  ASSERT_EQ(code.size(), 8819U);
  EXPECT_NEAR(gap_cv(code).value(), 13.15, 0.01);
  EXPECT_NEAR(mean_rate_per_s(code).value(), 2.57, 0.01);
  EXPECT_EQ(code[0], (TraceRow{0, 4808, 10}));
  const auto conversation = read("AzureLLMInferenceTrace_conv.csv");
  ASSERT_EQ(conversation.size(), 19'366U);
  EXPECT_NEAR(gap_cv(conversation).value(), 1.09, 0.01);
  EXPECT_NEAR(mean_rate_per_s(conversation).value(), 5.53, 0.01);
}

// Given rows; expects a replay of the first ones with sizes relative to their own mean, and then the end.
TEST(TraceSource, ReplaysTheFirstRows) {
  const std::vector<TraceRow> rows = {{0, 10, 20}, {1.5, 50, 10}, {2, 1000, 1000}};
  TraceSource source(rows, 2);
  const Request first = source.next().value();
  EXPECT_EQ(first.arrival_s, 0);
  EXPECT_DOUBLE_EQ(first.size, 30.0 / 45);
  const Request second = source.next().value();
  EXPECT_EQ(second.arrival_s, 1.5);
  EXPECT_DOUBLE_EQ(second.size, 60.0 / 45);
  EXPECT_EQ(second.input_tokens, 50);
  EXPECT_EQ(second.output_tokens, 10);
  EXPECT_FALSE(source.next().has_value());
  EXPECT_FALSE(source.next().has_value());
  TraceSource empty_requests(std::vector<TraceRow>{{0, 0, 0}});
  EXPECT_EQ(empty_requests.next().value().size, 1);
  EXPECT_FALSE(TraceSource(std::vector<TraceRow>()).next().has_value());
}

// Given too few rows or no time between them; expects no rate and no coefficient of variation. Given equal gaps; expects a
// coefficient of 0.
TEST(Trace, StatisticsOfFewRows) {
  EXPECT_FALSE(mean_rate_per_s(std::vector<TraceRow>{{0, 1, 1}}).has_value());
  EXPECT_FALSE(gap_cv(std::vector<TraceRow>{{0, 1, 1}, {1, 1, 1}}).has_value());
  EXPECT_FALSE(gap_cv(std::vector<TraceRow>{{0, 1, 1}, {0, 1, 1}, {0, 1, 1}}).has_value());
  EXPECT_DOUBLE_EQ(gap_cv(std::vector<TraceRow>{{0, 1, 1}, {2, 1, 1}, {4, 1, 1}}).value(), 0);
  EXPECT_DOUBLE_EQ(mean_rate_per_s(std::vector<TraceRow>{{0, 1, 1}, {2, 1, 1}, {4, 1, 1}}).value(), 0.5);
}

}  // namespace
}  // namespace windlass::workload
