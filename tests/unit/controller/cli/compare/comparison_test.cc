// Tests the comparison of runs of `windlass load`.
#include "controller/cli/compare/comparison.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/load/generator/load_result.h"
#include "tests/unit/controller/cli/example_objects.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// A run of ten requests, one per second, all with this TTFT.
std::string load_json(double ttft_s) {
  std::vector<load::RequestResult> requests;
  for (int i = 0; i < 10; ++i) {
    load::RequestResult request;
    request.index = static_cast<std::size_t>(i);
    request.scheduled_s = i;
    request.outcome = load::Outcome::kCompleted;
    request.status = 200;
    request.ttft_s = ttft_s;
    request.tpot_s = 0.02;
    request.finished_s = i + 1;
    requests.push_back(request);
  }
  return load::to_json(load::summarise(std::move(requests), 10, 1, 0.1), true);
}

constexpr const char* kHistory =
    "elapsed_s,service,desired,ready\n"
    "1.0,default/tiny,1,1\n"
    "4.0,default/tiny,2,2\n"
    "12.0,default/tiny,1,1\n";

// Given a run within its objectives and one that misses them; expects their figures in columns, and both in the chart.
TEST(Comparison, ShowsRunsInColumns) {
  const TempFolder folder;
  const std::string fast = folder.file("fast.json", load_json(0.1)), slow = folder.file("slow.json", load_json(4));
  const std::string history = folder.file("history.csv", kHistory);
  const auto ran = run({"compare", "slow=" + slow, "fast=" + fast, "--workers", "slow=1", "--workers", "fast=" + history,
                        "--ttft", "1s", "--report", (folder.path() / "page.html").string()});
  ASSERT_EQ(ran.code, kDone) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("attainment      0.0%    100.0%"));
  EXPECT_THAT(ran.out, HasSubstr("TTFT P95        4.00s   100ms"));
  EXPECT_THAT(ran.out, HasSubstr("worker-seconds  10      16"));
  EXPECT_THAT(ran.out, HasSubstr("o slow  # fast  - the objective, 1.00s"));
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '#'), 11);
}

// Given typical mistakes; expects an error that names each with its rule.
TEST(Comparison, WrongInputIsNamed) {
  const TempFolder folder;
  const std::string good = folder.file("good.json", load_json(0.1));
  const std::string empty = folder.file("empty.json", "{}"), text = folder.file("text.json", "requests   10 sent");
  EXPECT_THAT(run({"compare", good}).err, HasSubstr("must be NAME=FILE"));
  EXPECT_THAT(run({"compare", "a=" + good, "a=" + good}).err, HasSubstr("(got 'a' twice)"));
  EXPECT_THAT(run({"compare", "a=/no/such"}).err, HasSubstr("/no/such: must be a file written by `windlass load -o json`"));
  EXPECT_THAT(run({"compare", "a=" + empty}).err, HasSubstr("elapsedSeconds"));
  EXPECT_THAT(run({"compare", "a=" + text}).err, HasSubstr("windlass load -o json"));
  EXPECT_THAT(run({"compare", "a=" + good, "--workers", "b=1"}).err,
              HasSubstr("--workers: must name one of the runs (got 'b')"));
  EXPECT_THAT(run({"compare", "a=" + good, "--workers", "a=" + good}).err, HasSubstr("windlass top --record"));
  EXPECT_THAT(run({"compare", "a=" + good, "--ttft", "soon"}).err, HasSubstr("(got 'soon')"));
}

// Given histories that are truncated, of two services, or unsorted; expects the line.
TEST(Comparison, WrongHistoriesAreNamedByLine) {
  const auto run = compared_run("a", load_json(0.1));
  ASSERT_TRUE(run.ok()) << run.error().message;
  for (const auto& [csv, expected] : std::vector<std::pair<std::string, std::string>>{
           {"", "line 1: must have the columns elapsed_s, service, ready"},
           {"elapsed_s,service,ready\n", "must have at least one line within the run's 10.0s (got none)"},
           {"elapsed_s,service,ready\n1,a\n", "line 2: must have 3 fields, as in the first line (got 2)"},
           {"elapsed_s,service,ready\n1,a,1\n2,b,1\n", "line 3: service: must be the same service in every line: a (got 'b')"},
           {"elapsed_s,service,ready\n2,a,1\n1,a,1\n", "line 3: elapsed_s: must be a number from 2 to 1e+09 (got '1')"},
           {"elapsed_s,service,ready\n1,a,many\n", "line 2: ready: must be a whole number from 0 to 1000000 (got 'many')"}}) {
    ComparedRun copy = *run;
    const auto added = add_workers(copy, csv);
    ASSERT_FALSE(added.ok()) << csv;
    EXPECT_THAT(added.error().message, HasSubstr(expected));
  }
}

// Given a run that sent nothing; expects a table and a page without charts.
TEST(Comparison, TakesARunWithoutRequests) {
  const auto run = compared_run("none", load::to_json(load::summarise({}, 0, 1, 1), true));
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_THAT(comparison_text({*run}, {}), HasSubstr("sent"));
  EXPECT_THAT(comparison_page({*run}, {}), testing::Not(HasSubstr("<svg")));
}

}  // namespace
}  // namespace windlass::cli
