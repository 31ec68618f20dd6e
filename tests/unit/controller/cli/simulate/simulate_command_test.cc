// Tests `windlass simulate`: the examples, the files it writes, the same figures on one thread and on many, and mistakes on the
// command line and in files.
#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/cli/console/thread_executor.h"
#include "tests/paths.h"
#include "tests/unit/controller/cli/example_objects.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kSimulateExample = source_path("/examples/simulate/llama3-8b.yaml");

Outcome simulate(std::vector<std::string> arguments, bool terminal = false) {
  arguments.insert(arguments.begin(), "simulate");
  return run(arguments, {.err_terminal = terminal});
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Given the example that needs no other file; expects a table with the sources of the predictions, the defaults used, and the
// note that nothing was measured.
TEST(Simulate, PrintsATable) {
  const auto outcome = simulate({"-f", kSimulateExample});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* expected : {"4 x unified workers of 1 x l40s: linear model from data sheets", "Defaults used:", "TTFT",
                               "P90", "EXTRAPOLATED beyond the measurements", "90% INTERVAL", "by the data sheet, not measured",
                               "Objectives (TTFT 1s, TPOT 60ms)", "GPU-hours", "--replications N"}) {
    EXPECT_THAT(outcome.out, HasSubstr(expected));
  }
}

// Given JSON output; expects the documented names, the seed, the defaults and the mark of an extrapolation, and figures that
// depend on --seed.
TEST(Simulate, PrintsJson) {
  const auto outcome = simulate({"-f", kSimulateExample, "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  auto json = outcome.json();
  for (const char* name : {"requests", "completed", "ttftSeconds", "tbtSeconds", "tpotSeconds", "e2eSeconds", "sloAttainment",
                           "gpuHours", "cost", "wallSeconds", "iterations"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_FALSE(json.contains("slowdown"));
  EXPECT_EQ(json.at("seed"), 1);
  EXPECT_EQ(json.at("completed"), json.at("requests"));
  EXPECT_EQ(json.at("extrapolated"), true);
  EXPECT_FALSE(json.at("defaults").empty());
  auto again = simulate({"-f", kSimulateExample, "-o", "json", "--seed", "1"}).json();
  auto other = simulate({"-f", kSimulateExample, "-o", "json", "--seed", "2"}).json();
  for (auto* one : {&json, &again, &other}) one->erase("wallSeconds");
  EXPECT_EQ(json, again);
  EXPECT_NE(json.at("ttftSeconds"), other.at("ttftSeconds"));
}

// Given replications on one thread and on seven; expects the same JSON except the wall-clock time, with half-widths, and the
// same rows.
TEST(Simulate, ThreadsDoNotChangeTheResult) {
  const TempFolder folder;
  nlohmann::json results[2];
  std::string rows[2];
  for (const int i : {0, 1}) {
    const std::string csv = (folder.path() / ("r" + std::to_string(i) + ".csv")).string();
    const auto outcome = simulate(
        {"-f", kSimulateExample, "-o", "json", "--replications", "9", "--jobs", i == 0 ? "1" : "7", "--requests-csv", csv});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    results[i] = outcome.json();
    results[i].erase("wallSeconds");
    rows[i] = text_of(csv);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_EQ(results[0].at("replications"), 9);
  EXPECT_GT(results[0].at("halfWidths").at("ttftSeconds").at("p99").get<double>(), 0);
}

// Given --requests-csv; expects a row for every request of every replication, in the order of arrival, with the JSON's mean.
TEST(Simulate, WritesRequests) {
  const TempFolder folder;
  const std::string csv = (folder.path() / "r.csv").string();
  const auto outcome = simulate({"-f", kSimulateExample, "-o", "json", "--replications", "2", "--requests-csv", csv});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const auto lines = lines_of(text_of(csv));
  const auto json = outcome.json();
  ASSERT_EQ(lines.size(), json.at("requests").get<std::size_t>() + 1);
  EXPECT_EQ(
      lines[0],
      "replication,request,arrival_s,input_tokens,output_tokens,outcome,prefill_worker,decode_worker,scheduling_delay_s,ttft_s,"
      "tbt_s,e2e_s");
  double sums[2] = {0, 0}, counts[2] = {0, 0};
  long last[2] = {-1, -1};
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::vector<std::string> fields;
    std::istringstream in(lines[i] + ",");
    for (std::string field; std::getline(in, field, ',');) fields.push_back(field);
    ASSERT_EQ(fields.size(), 12u) << lines[i];
    const auto replication = std::stoul(fields[0]);
    ASSERT_LT(replication, 2u);
    EXPECT_EQ(std::stol(fields[1]), ++last[replication]);
    EXPECT_EQ(fields[5], "completed");
    sums[replication] += std::stod(fields[9]);
    ++counts[replication];
  }
  EXPECT_NEAR((sums[0] / counts[0] + sums[1] / counts[1]) / 2, json.at("ttftSeconds").at("mean").get<double>(), 1e-6);
}

// Given --report; expects a self-contained page with every plot, closed tags and finite numbers.
TEST(Simulate, WritesAPage) {
  const TempFolder folder;
  const std::string html = (folder.path() / "r.html").string();
  const auto outcome = simulate({"-f", kSimulateExample, "--replications", "2", "--report", html});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const std::string page = text_of(html);
  for (const char* title : {"Time to first token", "Time between tokens", "Arrival to last token",
                            "SLO attainment by request rate", "KV cache in use", "Batches", "Workers"}) {
    EXPECT_THAT(page, HasSubstr(title));
  }
  for (const char* outside : {"src=", "href=", "url(", "<script", "@import", "nan", "inf "})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  const auto count = [&](const std::string& part) {
    std::size_t times = 0;
    for (std::size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++times;
    return times;
  };
  EXPECT_EQ(count("<svg"), 7u);
  // The only URL is SVG's namespace.
  EXPECT_EQ(count("https://"), 0u);
  EXPECT_EQ(count("http://"), count("http://www.w3.org/2000/svg"));
  EXPECT_EQ(count("</svg>"), 7u);
  EXPECT_THAT(page, HasSubstr("EXTRAPOLATED beyond the measurements"));
  EXPECT_LT(page.size(), 600'000u);
}

// Given a scenario file with markup in its name; expects it as text on the page.
TEST(Simulate, PagesEscape) {
  const TempFolder folder;
  const std::string file = folder.file("a<b>&c.yaml", text_of(kSimulateExample));
  const std::string html = (folder.path() / "r.html").string();
  ASSERT_EQ(simulate({"-f", file, "--report", html}).code, kDone);
  EXPECT_THAT(text_of(html), HasSubstr("a&lt;b&gt;&amp;c.yaml"));
  EXPECT_THAT(text_of(html), Not(HasSubstr("a<b>")));
}

// Given no slo; expects no attainment and no plot of it. Given refused requests; expects a note.
TEST(Simulate, PrintsOnlyWhatTheScenarioHas) {
  const TempFolder folder;
  std::string text = text_of(kSimulateExample);
  text = replaced(text, "slo: {timeToFirstToken: 1s, timePerOutputToken: 60ms, percentile: 95}", "");
  const std::string html = (folder.path() / "r.html").string();
  const auto plain = simulate({"-f", folder.file("a.yaml", text), "-o", "json", "--report", html});
  ASSERT_EQ(plain.code, kDone) << plain.err;
  EXPECT_TRUE(plain.json().at("sloAttainment").is_null());
  EXPECT_THAT(text_of(html), Not(HasSubstr("Attainment")));
  const auto refused =
      simulate({"-f", folder.file("b.yaml", replaced(text, "source: linear", "source: linear, kvCapacityTokens: 1600"))});
  ASSERT_EQ(refused.code, kDone) << refused.err;
  EXPECT_THAT(refused.out, HasSubstr("REFUSED requests are longer than any worker's KV cache"));
}

// Given paths in a scenario, relative to its folder or absolute; expects the files, and the field's name for a missing one.
TEST(Simulate, PathsAreRelativeToTheScenario) {
  const TempFolder folder;
  const std::string trace =
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.0000000,100,11\n2023-11-16 18:17:05.0000000,100,11\n";
  const std::string path = folder.file("t.csv", trace);
  const auto scenario = [&](const std::string& named) {
    return folder.file("s.yaml", "model: {name: llama3-8b}\nlatency: {source: linear}\nworkload: {trace: " + named +
                                     ", arrivals: trace}\ncluster: {pools: [{accelerator: l40s}]}\n");
  };
  for (const std::string& named : {std::string("t.csv"), path}) {
    const auto outcome = simulate({"-f", scenario(named), "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    EXPECT_EQ(outcome.json().at("requests"), 2);
  }
  const auto missing = simulate({"-f", scenario("none.csv")});
  EXPECT_EQ(missing.code, kUsage);
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(missing.err, HasSubstr("s.yaml:3: workload.trace: "));
  EXPECT_THAT(missing.err, HasSubstr("none.csv: must be"));
  const auto twice = simulate({"-f", scenario("t.csv"), "--replications", "2"});
  EXPECT_EQ(twice.code, kUsage);
  EXPECT_THAT(twice.err, HasSubstr("--replications: must be 1 (got 2), since"));
}

// Given wrong command lines and files; expects exit code 2, no output, and one line that names the mistake.
TEST(Simulate, MistakesAreNamed) {
  const TempFolder folder;
  const std::string text = text_of(kSimulateExample);
  const std::string bad_field = folder.file("field.yaml", replaced(text, "workers: 4", "workers: four"));
  const std::string bad_yaml = folder.file("yaml.yaml", "model: {name: llama3-8b\n");
  const std::string empty = folder.file("empty.yaml", replaced(text, "duration: 300s", "duration: 1ms"));
  const std::string small = folder.file("small.yaml", replaced(text, "l40s", "t4"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{}, "--file is required"},
      {{"-f", "/no/such.yaml"}, "/no/such.yaml: must be"},
      {{"-f", folder.path().string()}, "it is a folder"},
      {{"-f", bad_field}, "cluster.pools[0].workers: must be a whole number from 1 to 100000 (got 'four')"},
      {{"-f", bad_yaml}, "yaml.yaml:"},
      {{"-f", small}, "cluster.pools[0]: must have memory for"},
      {{"-f", empty}, "workload.duration: must be long enough for one request at 12 requests/s"},
      {{"-f", kSimulateExample, "--seed", "-1"}, "--seed"},
      {{"-f", kSimulateExample, "--replications", "0"}, "--replications"},
      {{"-f", kSimulateExample, "--replications", "many"}, "--replications"},
      {{"-f", kSimulateExample, "--jobs", "-2"}, "--jobs"},
      {{"-f", kSimulateExample, "-o", "xml"}, "xml"},
      {{"-f", kSimulateExample, "--report", "/no/such/folder/r.html"}, "/no/such/folder/r.html: must be a writable file"},
      {{"-f", kSimulateExample, "--requests-csv", folder.path().string()}, "must be a writable file (Is a directory)"},
      {{"-f", kSimulateExample, "--speed", "9"}, "--speed"},
  };
  for (const auto& [arguments, expected] : table) {
    const auto outcome = simulate(arguments);
    const std::string line = testing::PrintToString(arguments);
    EXPECT_EQ(outcome.code, kUsage) << line;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_THAT(outcome.err, HasSubstr(expected)) << line;
  }
  EXPECT_EQ(lines_of(simulate({"-f", bad_field}).err).size(), 1u);
}

// Given tasks on several threads; expects each to run once, and none for no tasks.
TEST(ThreadExecutor, RunsEachTaskOnce) {
  for (const int threads : {1, 2, 7}) {
    ThreadExecutor executor(threads);
    EXPECT_EQ(executor.concurrency(), threads);
    for (const std::size_t count : {0u, 1u, 5u, 1000u}) {
      std::vector<int> runs(count, 0);
      executor.run(count, [&](std::size_t i) { ++runs[i]; });
      EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), static_cast<std::ptrdiff_t>(count));
    }
  }
  EXPECT_GE(ThreadExecutor().concurrency(), 1);
}

// Given the scenarios of Splitwise's Fig. 12 and of DistServe's ShareGPT, if their data is there; expects all requests to be
// served, a KV transfer for every request of more than one token, and slowdowns.
TEST(Simulate, ExamplesOnMeasuredData) {
  if (!std::filesystem::exists(source_path("/../shared/data/profiles"))) GTEST_SKIP() << "../shared/data is not there";
  const auto splitwise = simulate({"-f", source_path("/examples/simulate/splitwise-code.yaml"), "-o", "json"});
  ASSERT_EQ(splitwise.code, kDone) << splitwise.err;
  EXPECT_NEAR(splitwise.json().at("requests").get<double>(), 70 * 120, 400);
  EXPECT_EQ(splitwise.json().at("completed"), splitwise.json().at("requests"));
  EXPECT_GT(splitwise.json().at("slowdown").at("e2e").at("p50").get<double>(), 0.3);
  const auto opt = simulate({"-f", source_path("/examples/simulate/opt-13b-disaggregated.yaml"), "-o", "json"});
  ASSERT_EQ(opt.code, kDone) << opt.err;
  EXPECT_EQ(opt.json().at("completed"), opt.json().at("requests"));
  EXPECT_GT(opt.json().at("kvTransfers").get<int>(), 0);
}

// Given every example that needs no other file; expects a table and JSON in which every request is served, refused or failed,
// with figures per worker and, for several services, per service.
TEST(Simulate, EveryExampleRuns) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("/examples/simulate"))) {
    const std::string path = entry.path().string();
    if (text_of(path).find("shared/data") != std::string::npos) continue;
    ++files;
    const auto table = simulate({"-f", path});
    ASSERT_EQ(table.code, kDone) << path << table.err;
    const auto json = simulate({"-f", path, "-o", "json"}).json();
    ASSERT_TRUE(json.is_object()) << path;
    EXPECT_EQ(json.at("completed").get<int>() + json.at("refused").get<int>() + json.at("failed").get<int>(),
              json.at("requests").get<int>())
        << path;
    EXPECT_GT(json.at("completed").get<int>(), 0);
    const auto services = json.contains("services") ? json.at("services") : nlohmann::json::array({json});
    for (const auto& service : services) {
      EXPECT_FALSE(service.at("workers").empty()) << path;
      EXPECT_THAT(table.out, HasSubstr(service.contains("name") ? "SERVICE " + service.at("name").get<std::string>() : "TTFT"));
    }
  }
  EXPECT_GE(files, 5);
}

// Given two services; expects a section for each on the page, and the service's name in the rows of requests.
TEST(Simulate, ServicesHaveTheirOwnSections) {
  const TempFolder folder;
  const std::string html = (folder.path() / "r.html").string(), csv = (folder.path() / "r.csv").string();
  const auto outcome =
      simulate({"-f", source_path("/examples/simulate/two-models.yaml"), "--report", html, "--requests-csv", csv});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const std::string page = text_of(html);
  const std::size_t chat = page.find("<h2>chat</h2>"), code = page.find("<h2>code</h2>");
  ASSERT_NE(chat, std::string::npos);
  ASSERT_NE(code, std::string::npos);
  for (const std::size_t from : {chat, code}) {
    const std::string section = page.substr(from, from == chat ? code - chat : std::string::npos);
    for (const char* title : {"Time to first token", "SLO attainment by request rate", "KV cache in use", "Workers"}) {
      EXPECT_THAT(section, HasSubstr(title));
    }
  }
  const auto lines = lines_of(text_of(csv));
  EXPECT_TRUE(lines[0].starts_with("service,replication,request,"));
  int chats = 0;
  for (const std::string& line : lines) chats += line.starts_with("chat,") ? 1 : 0;
  EXPECT_GT(chats, 0);
  EXPECT_LT(chats, static_cast<int>(lines.size()) - 1);
}

// Given the gzipped operator tables of the H100, if the data is there; expects an answer near the roofline's.
// Given a missing folder, and a truncated file; expects an error that names it.
TEST(Simulate, OperatorTables) {
  const std::string tables = source_path("/../shared/data/profiles/operators/h100_sxm");
  const TempFolder folder;
  const auto scenario = [&](const std::string& latency) {
    return folder.file("s.yaml", "model: {name: llama3.1-8b}\nlatency: {" + latency +
                                     "}\nworkload: {inputTokens: 1000, outputTokens: 50, requestsPerSecond: 2, duration: 20s}\n"
                                     "cluster: {pools: [{accelerator: h100-80gb}]}\n");
  };
  const auto missing = simulate({"-f", scenario("source: operators, file: none")});
  EXPECT_EQ(missing.code, kUsage);
  EXPECT_THAT(missing.err, HasSubstr("s.yaml:2: latency.file: "));
  EXPECT_THAT(missing.err, HasSubstr("none/gemm_perf.csv.gz: must be"));
  folder.file("cut/gemm_perf.csv.gz", std::string("\x1f\x8b\x08\x00", 4) + std::string(20, '\0'));
  const auto cut = simulate({"-f", scenario("source: operators, file: cut")});
  EXPECT_EQ(cut.code, kUsage);
  EXPECT_THAT(cut.err, HasSubstr("cut/gemm_perf.csv.gz: must be a complete gzip file"));
  if (!std::filesystem::exists(tables)) GTEST_SKIP() << tables << " is not there";
  const auto measured = simulate({"-f", scenario("source: operators, file: " + tables), "-o", "json"});
  ASSERT_EQ(measured.code, kDone) << measured.err;
  const auto modelled = simulate({"-f", scenario("source: roofline"), "-o", "json"});
  ASSERT_EQ(modelled.code, kDone) << modelled.err;
  const double ratio =
      measured.json().at("tpotSeconds").at("mean").get<double>() / modelled.json().at("tpotSeconds").at("mean").get<double>();
  EXPECT_GT(ratio, 0.7);
  EXPECT_LT(ratio, 1.4);
  EXPECT_NE(ratio, 1);
}

}  // namespace
}  // namespace windlass::cli
