// The parser of foreign pages: good pages, bad lines, and randomly damaged pages.
#include "metrics/exposition_parser.h"

#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/effort.h"

namespace windlass::metrics {
namespace {

using ::testing::HasSubstr;

const char* const kPage =
    "# HELP http_requests_total Requests. With \\\\ and \\n.\n"
    "# TYPE http_requests_total counter\n"
    "http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n"
    "http_requests_total{method=\"post\",code=\"400\",} 3\n"
    "\n"
    "# a comment, and escapes:\n"
    "msdos_file_access_time_seconds{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"Cannot find:\\n\\\"FILE.TXT\\\"\"} 1.458255915e9\n"
    "metric_without_timestamp_and_labels 12.47\r\n"
    "something_weird{problem=\"division by zero\"} +Inf -3982045\n"
    "  spaced\t{ a = \"b\" , c=\"d\" }   -.5e-3  \n"
    "nothing NaN\n"
    "below -Inf\n"
    "# TYPE rpc histogram\n"
    "rpc_bucket{le=\"0.1\"} 5\n"
    "rpc_bucket{le=\"+Inf\"} 8\n"
    "rpc_sum 2.5\n"
    "rpc_count 8\n"
    "# EOF";

// Given the format's own examples with odd spacing, CRLF and no final newline; expects every sample as written.
TEST(ParseExposition, ReadsTheFormat) {
  auto page = parse_exposition(kPage);
  ASSERT_TRUE(page.ok()) << page.error().message;
  ASSERT_EQ(page->samples.size(), 12U);
  EXPECT_EQ(page->samples[0], (Sample{"http_requests_total", {{"method", "post"}, {"code", "200"}}, 1027, 1395066363000}));
  EXPECT_EQ(page->samples[2].labels.at("path"), "C:\\DIR\\FILE.TXT");
  EXPECT_EQ(page->samples[2].labels.at("error"), "Cannot find:\n\"FILE.TXT\"");
  EXPECT_EQ(page->samples[3].value, 12.47);
  EXPECT_TRUE(std::isinf(page->samples[4].value));
  EXPECT_EQ(page->samples[4].timestamp_ms, -3982045);
  EXPECT_EQ(page->samples[5], (Sample{"spaced", {{"a", "b"}, {"c", "d"}}, -0.0005, std::nullopt}));
  EXPECT_TRUE(std::isnan(page->samples[6].value));
  EXPECT_EQ(page->samples[7].value, -INFINITY);
  EXPECT_EQ(page->sum("http_requests_total"), 1030);
  EXPECT_EQ(page->sum("http_requests_total", {{"code", "400"}}), 3);
  EXPECT_EQ(page->sum("http_requests_total", {{"code", "500"}}), std::nullopt);
  EXPECT_EQ(page->label_values("http_requests_total", "code"), (std::vector<std::string>{"200", "400"}));
  EXPECT_EQ(page->types.at("rpc"), MetricType::kHistogram);
  auto rpc = page->histogram("rpc");
  ASSERT_TRUE(rpc.ok()) << rpc.error().message;
  EXPECT_EQ(rpc->count(), 8);
  EXPECT_EQ(rpc->sum, 2.5);
}

// Given an empty page; expects no samples and no error.
TEST(ParseExposition, AnEmptyPageIsEmpty) {
  auto page = parse_exposition("");
  ASSERT_TRUE(page.ok());
  EXPECT_TRUE(page->samples.empty());
}

// Given one bad line after a good one; expects an error with line 2 and the problem.
TEST(ParseExposition, BadLinesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1abc 3", "metric name"},
      {"{a=\"b\"} 3", "metric name"},
      {"abc", "value of abc: must be a number, NaN, +Inf or -Inf (got end of line)"},
      {"abc x", "value of abc: must be a number, NaN, +Inf or -Inf (got 'x')"},
      {"abc 1.2.3", "value of abc"},
      {"abc 0x10", "value of abc"},
      {"abc nan(1)", "value of abc"},
      {"abc infinity", "value of abc"},
      {"abc ++1", "value of abc"},
      {"abc +-1", "value of abc"},
      {"abc --1", "value of abc"},
      {"abc 1 2.5", "timestamp of abc"},
      {"abc 1 2 3", "after abc"},
      {"abc{ 1", "label name of abc"},
      {"abc{a} 1", "label a: must be '=' (got '} 1')"},
      {"abc{a=b} 1", "value of label a"},
      {"abc{a=\"b} 1", "value of label a: must be a closing '\"' (got end of line)"},
      {"abc{a=\"b\\\"} 1", "closing"},
      {"abc{a=\"b\\", "closing"},
      {"abc{a=\"\\x\"} 1", "value of label a"},
      {"abc{a=\"b\" c=\"d\"} 1", "after label a"},
      {"abc{a=\"b\",,} 1", "label name of abc"},
      {"abc{a=\"b\",a=\"c\"} 1", "must be a label that is not given yet"},
      {"abc{a:b=\"c\"} 1", "label a"},
      {"abc{a=\"b\"", "after label a: must be ',' or '}' (got end of line)"},
      {"# TYPE abc speedometer", "type of abc: must be counter, gauge, histogram, summary or untyped (got 'speedometer')"},
      {"# TYPE", "name after # TYPE"},
      {"# TYPE good counter", "an earlier # TYPE line"},
  };
  for (const auto& [line, expected] : cases) {
    auto page = parse_exposition("# TYPE good counter\n" + line + "\ngood 1\n");
    ASSERT_FALSE(page.ok()) << line;
    EXPECT_EQ(page.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(page.error().message, HasSubstr("line 2: ")) << line;
    EXPECT_THAT(page.error().message, HasSubstr(expected)) << line;
  }
}

// Given a page with bytes randomly changed, cut or doubled (seeded); expects a page or an error with a line number, and no read
// outside the text (checked by the sanitizer build).
TEST(ParseExposition, TornPagesNeverCrash) {
  std::mt19937_64 rng(20240601);
  const std::string page = kPage;
  int errors = 0;
  for (int round = 0; round < effort(2000, 20'000); ++round) {
    std::string torn = page;
    const int edits = 1 + static_cast<int>(rng() % 4);
    for (int i = 0; i < edits && !torn.empty(); ++i) {
      const std::size_t at = rng() % torn.size();
      switch (rng() % 4) {
        case 0: torn[at] = static_cast<char>(rng() % 256); break;
        case 1: torn.erase(at, 1 + rng() % 8); break;
        case 2: torn.insert(at, torn.substr(rng() % torn.size(), rng() % 16)); break;
        default: torn.resize(at); break;
      }
    }
    auto parsed = parse_exposition(torn);
    if (!parsed.ok()) {
      ++errors;
      ASSERT_THAT(parsed.error().message, HasSubstr("line ")) << torn;
    }
  }
  EXPECT_GT(errors, effort(66, 1000));
}

// Given inconsistent histograms; expects an error that says how.
TEST(Histogram, BadOnesAreErrors) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"h_bucket{le=\"1\"} 1\n", "must have a bucket le=\"+Inf\""},
      {"h_bucket 1\n", "label le: must be a number or +Inf (got none)"},
      {"h_bucket{le=\"x\"} 1\n", "label le: must be a number or +Inf (got 'x')"},
      {"h_bucket{le=\"1\"} 5\nh_bucket{le=\"+Inf\"} 4\n", "cumulative"},
      {"h_bucket{le=\"+Inf\"} NaN\n", "must be a count (got nan)"},
      {"h_bucket{le=\"1\"} 1\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"+Inf\"} 1\n", "must be unique"},
      {"h_bucket{m=\"a\",le=\"1\"} 1\nh_bucket{m=\"a\",le=\"+Inf\"} 1\nh_bucket{m=\"b\",le=\"2\"} "
       "1\nh_bucket{m=\"b\",le=\"+Inf\"} 1\n",
       "must be equal in all summed series"},
      {"g 1\n", "no series"},
  };
  for (const auto& [text, expected] : cases) {
    auto page = parse_exposition(text);
    ASSERT_TRUE(page.ok()) << page.error().message;
    auto histogram = page->histogram("h");
    ASSERT_FALSE(histogram.ok()) << text;
    EXPECT_THAT(histogram.error().message, HasSubstr(expected)) << text;
  }
}

// Given two series of one histogram with buckets in any order; expects their sum, and one of them for a matching label.
TEST(Histogram, SumsSeries) {
  auto page = parse_exposition(
      "h_bucket{m=\"a\",le=\"+Inf\"} 4\nh_bucket{m=\"a\",le=\"1\"} 3\nh_sum{m=\"a\"} 6\n"
      "h_bucket{m=\"b\",le=\"1\"} 1\nh_bucket{m=\"b\",le=\"+Inf\"} 1\nh_sum{m=\"b\"} 0.5\n");
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->histogram("h")->counts, (std::vector<double>{4, 5}));
  EXPECT_EQ(page->histogram("h")->sum, 6.5);
  EXPECT_EQ(page->histogram("h", {{"m", "b"}})->counts, (std::vector<double>{1, 1}));
}

// Given llama.cpp's "-nan" among good lines; expects a partial read to leave out only that series, and a full read to fail.
TEST(PartialExposition, OneBrokenValueTakesItsSeriesAlone) {
  const std::string text =
      "llamacpp:prompt_tokens_seconds -nan\n# TYPE broken\nllamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n";
  EXPECT_FALSE(parse_exposition(text).ok());
  const auto read = parse_exposition_partially(text);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->broken, std::vector<std::string>{"llamacpp:prompt_tokens_seconds"});
  EXPECT_EQ(read->page.sum("llamacpp:requests_processing"), 2);
  EXPECT_EQ(read->page.sum("llamacpp:requests_deferred"), 1);
  EXPECT_FALSE(read->page.sum("llamacpp:prompt_tokens_seconds"));
}

// Given two series of a name, one of them malformed; expects the other to be left out too, because alone it would be half of
// the load.
TEST(PartialExposition, APartialSumIsLeftOut) {
  const auto read = parse_exposition_partially("run{rank=\"0\"} 3\nrun{rank=1} 4\nwait 0\n");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_FALSE(read->page.sum("run"));
  EXPECT_EQ(read->page.sum("wait"), 0);
}

// Given a page cut in the middle of its last line; expects the last series to be left out, even though its rest is legible.
TEST(PartialExposition, ACutLastLineIsLeftOut) {
  const auto read = parse_exposition_partially("wait 1\nrun 12");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->page.sum("wait"), 1);
  EXPECT_FALSE(read->page.sum("run"));
}

// Given text that is no exposition: JSON, HTML, words; expects an error for each, not an empty page.
TEST(PartialExposition, OtherTextIsAnError) {
  for (const char* text : {"[{\"iter\": 1}]\n", "<html>\nwait 1\n", "Internal Server Error\n", "{\"a\": 1}"}) {
    EXPECT_FALSE(parse_exposition_partially(text).ok()) << text;
  }
  EXPECT_TRUE(parse_exposition_partially("").ok());
}

// Given a reader that needs some series; expects only these, mistakes in the lines of others to go unnoticed, and a page that
// is no exposition to be an error as before.
TEST(ExpositionParser, LeavesOutWhatNobodyReads) {
  const WantedSeries wanted = [](std::string_view name) { return !name.ends_with("_bucket"); };
  const std::string text = "a{x=\"1\"} 1\nb_bucket{le=\"1\"} oops\nb_sum 2\n";
  const auto page = parse_exposition(text, wanted);
  ASSERT_TRUE(page.ok()) << page.error().message;
  ASSERT_EQ(page->samples.size(), 2U);
  EXPECT_EQ(page->samples[1].name, "b_sum");
  EXPECT_FALSE(parse_exposition(text).ok());
  const auto partial = parse_exposition_partially(text, wanted);
  ASSERT_TRUE(partial.ok()) << partial.error().message;
  EXPECT_EQ(partial->page.samples, page->samples);
  EXPECT_TRUE(partial->broken.empty());
  EXPECT_FALSE(parse_exposition_partially("<html>\n", wanted).ok());
}

}  // namespace
}  // namespace windlass::metrics
