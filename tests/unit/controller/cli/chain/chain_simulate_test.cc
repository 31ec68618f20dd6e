// Tests `windlass chain simulate`: the documented names, agreement with the bounds, seeds, traces, and mistakes on the command
// line.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/paths.h"
#include "tests/unit/controller/cli/chain/chain_command.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

const std::string kLlama = source_path("/examples/chains/llama-2-7b.yaml");

constexpr const char* kTrace = R"(TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.0000000,2048,11
2023-11-16 18:17:04.0000000,1024,1
2023-11-16 18:17:06.0000000,512,21
2023-11-16 18:17:10.0000000,4096,31
)";

// Given the example under JFFC at a load of 70%; expects every documented name, the requested number of requests, waiting +
// service = response, and the mean between the two bounds of Theorem 3.7, within its confidence interval.
TEST(ChainSimulate, AgreesWithTheBounds) {
  const auto composed = run_chain({"compose", "-f", kBloom, "--capacity", "7", "-o", "json"}).json();
  const double rate = 0.7 * composed.at("totalServiceRatePerSecond").get<double>();
  const auto outcome = run_chain({"simulate", "-f", kBloom, "--capacity", "7", "--arrival-rate", fmt::format("{}", rate),
                                  "--requests", "20000", "--replications", "5", "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto json = outcome.json();
  EXPECT_EQ(json.at("requests"), 100'000);
  EXPECT_EQ(json.at("replications"), 5);
  EXPECT_EQ(json.at("warmUpRequests"), 2000);
  EXPECT_GE(json.at("wallSeconds").get<double>(), 0);
  EXPECT_LE(json.at("p50"), json.at("p95"));
  EXPECT_LE(json.at("p95"), json.at("p99"));
  const double mean = json.at("meanResponseTimeSeconds");
  EXPECT_NEAR(json.at("meanWaitingTimeSeconds").get<double>() + json.at("meanServiceTimeSeconds").get<double>(), mean,
              1e-6 * mean);
  EXPECT_EQ(json.at("response").at("meanSeconds"), mean);
  EXPECT_EQ(json.at("response").at("p99"), json.at("p99"));
  const double half_width = json.at("response").at("meanHalfWidthSeconds");
  EXPECT_GT(half_width, 0);
  EXPECT_GE(mean + half_width, json.at("bounds").at("meanResponseTimeLowerSeconds").get<double>());
  EXPECT_LE(mean - half_width, json.at("bounds").at("meanResponseTimeUpperSeconds").get<double>());
}

// Given one seed twice and another one; expects the same figures except the wall-clock time, and different ones.
TEST(ChainSimulate, SeedsDecide) {
  const auto run = [](const char* seed) {
    auto json = run_chain({"simulate", "-f", kBloom, "--requests", "2000", "--seed", seed, "-o", "json"}).json();
    json.erase("wallSeconds");
    return json;
  };
  const auto first = run("7");
  EXPECT_EQ(first.at("seed"), 7);
  EXPECT_TRUE(first.at("response").at("meanHalfWidthSeconds").is_null());
  EXPECT_EQ(first, run("7"));
  EXPECT_NE(first.at("meanResponseTimeSeconds"), run("8").at("meanResponseTimeSeconds"));
}

// Given every policy; expects it to run, to be named, and not to beat the fastest chain. Routing policies use their own
// placement.
TEST(ChainSimulate, EveryPolicy) {
  for (const char* policy : {"jffc", "jsq", "jiq", "sed", "sa-jsq", "random", "round-robin", "ws-rr", "petals"}) {
    const auto outcome = run_chain({"simulate", "-f", kBloom, "--policy", policy, "--requests", "2000", "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << policy << ": " << outcome.err;
    const auto json = outcome.json();
    EXPECT_EQ(json.at("policy"), policy);
    EXPECT_EQ(json.at("requests"), 2000) << policy;
    EXPECT_GT(json.at("meanServiceTimeSeconds").get<double>(), 70 * 0.109 * 0.8) << policy;
    const std::string placement = policy == std::string("ws-rr")    ? "cg-bp"
                                  : policy == std::string("petals") ? "petals"
                                                                    : "gbp-cr";
    EXPECT_EQ(json.at("placement"), placement);
  }
  const auto other = run_chain({"simulate", "-f", kBloom, "--policy", "ws-rr", "--placement", "gbp-cr", "--capacity", "7",
                                "--requests", "500", "-o", "json"});
  ASSERT_EQ(other.code, kDone) << other.err;
  EXPECT_EQ(other.json().at("placement"), "gbp-cr");
  EXPECT_EQ(other.json().at("capacity"), 7);
}

// Given more requests than can be served; expects a simulation that is reported as unstable and shows the queue in the times.
TEST(ChainSimulate, ReportsInstability) {
  const auto outcome =
      run_chain({"simulate", "-f", kBloom, "--capacity", "7", "--arrival-rate", "100", "--requests", "5000", "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.json().at("stable"), false);
  EXPECT_EQ(outcome.json().at("meetsMaxLoad"), false);
  EXPECT_TRUE(outcome.json().at("bounds").is_null());
  EXPECT_GT(outcome.json().at("meanWaitingTimeSeconds").get<double>(), 100);
  EXPECT_THAT(run_chain({"simulate", "-f", kBloom, "--arrival-rate", "100", "--requests", "100"}).out, HasSubstr("NOT STABLE"));
}

// Given a trace of four requests far apart and servers with token times; expects no waiting, and the service times computed by
// hand from the tokens on the one chain. With --requests and --warmup, expects the first rows, without those of the warm-up.
TEST(ChainSimulate, TraceByTokens) {
  const TempFolder folder;
  const std::string trace = folder.file("t.csv", kTrace);
  const std::string file = folder.file("f.yaml", R"(model: {blocks: 3, blockSizeGB: 1, cacheSizeGB: 0.1}
arrivalRate: 0.01
servers:
- {name: a, memoryGB: 10, communicationSeconds: 0.5, blockSeconds: 1, tokenTimes: {blockOverheadSeconds: 0.01,
     blockPrefillSecondsPerToken: 1e-5, blockDecodeSecondsPerToken: 2e-4, communicationFirstSeconds: 0.1,
     communicationSecondsPerToken: 1e-3}}
)");
  const auto seconds = [](int in, int out) { return 0.1 + 3 * 0.01 + 3 * 1e-5 * in + (out - 1) * (1e-3 + 3 * 2e-4); };
  const auto all = run_chain({"simulate", "-f", file, "--trace", trace, "-o", "json"});
  ASSERT_EQ(all.code, kDone) << all.err;
  EXPECT_EQ(all.json().at("requests"), 4);
  EXPECT_EQ(all.json().at("meanWaitingTimeSeconds"), 0);
  EXPECT_NEAR(all.json().at("meanServiceTimeSeconds").get<double>(),
              (seconds(2048, 11) + seconds(1024, 1) + seconds(512, 21) + seconds(4096, 31)) / 4, 1e-6);
  EXPECT_NEAR(all.json().at("arrivalRate").get<double>(), 3.0 / 7, 1e-12);
  const auto some = run_chain({"simulate", "-f", file, "--trace", trace, "--requests", "2", "--warmup", "1", "-o", "json"});
  ASSERT_EQ(some.code, kDone) << some.err;
  EXPECT_EQ(some.json().at("requests"), 2);
  EXPECT_NEAR(some.json().at("meanServiceTimeSeconds").get<double>(), (seconds(1024, 1) + seconds(512, 21)) / 2, 1e-6);
  EXPECT_THAT(run_chain({"simulate", "-f", file, "--trace", trace}).out,
              HasSubstr(trace + ": 0.4286 requests/s, CV of the inter-arrival times"));
  EXPECT_THAT(run_chain({"simulate", "-f", file, "--trace", trace}).out,
              HasSubstr("the chains are composed for 0.01 requests/s; --arrival-rate 0.4286 "));
  EXPECT_EQ(run_chain({"simulate", "-f", file, "--trace", trace, "--arrival-rate", "0.4"}).out.find("are composed for"),
            std::string::npos);
}

// Given the first 1,000 requests of the Azure code trace on the Llama example; expects every kind of policy to serve all of
// them.
TEST(ChainSimulate, AzureTrace) {
  const std::string trace = source_path("/../shared/data/traces/AzureLLMInferenceTrace_code.csv");
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << trace << " is not there";
  for (const char* policy : {"jffc", "random", "ws-rr", "petals"}) {
    const auto outcome =
        run_chain({"simulate", "-f", kLlama, "--policy", policy, "--trace", trace, "--requests", "1000", "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << policy << ": " << outcome.err;
    EXPECT_EQ(outcome.json().at("requests"), 1000) << policy;
    EXPECT_GT(outcome.json().at("meanServiceTimeSeconds").get<double>(), 0.3) << policy;
  }
}

// Given inter-arrival times with more variation; expects longer waiting. Given even ones; expects less waiting than Poisson's.
TEST(ChainSimulate, ArrivalVariation) {
  const auto waiting = [](const char* cv) {
    const auto outcome = run_chain({"simulate", "-f", kBloom, "--capacity", "7", "--arrival-rate", "0.9", "--arrival-cv", cv,
                                    "--requests", "30000", "-o", "json"});
    EXPECT_EQ(outcome.code, kDone) << outcome.err;
    return outcome.json().at("meanWaitingTimeSeconds").get<double>();
  };
  const double even = waiting("0");
  const double poisson = waiting("1");
  EXPECT_LT(even, poisson);
  EXPECT_LT(poisson, waiting("4"));
}

// Given the table; expects a row per kind of time, and a hint if there is no confidence interval.
TEST(ChainSimulate, Table) {
  const auto outcome = run_chain({"simulate", "-f", kBloom, "--requests", "1000"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* expected : {"policy jffc on the gbp-cr placement", "TIME", "P99", "\nwaiting ", "\nservice ", "\nresponse ",
                               "--replications N", "Bounds on the mean response time under JFFC"}) {
    EXPECT_THAT(outcome.out, HasSubstr(expected));
  }
  EXPECT_THAT(run_chain({"simulate", "-f", kBloom, "--requests", "1000", "--replications", "3"}).out,
              HasSubstr("3000 requests measured in 3 replications"));
}

// Given requests that pile up under WS-RR; expects an immediate warning on stderr, and growth in the text and the JSON, also
// for 100,000 of them. Given few requests; expects neither.
TEST(ChainSimulate, ReportsGrowingWaits) {
  const auto over = run_chain({"simulate", "-f", kBloom, "--policy", "ws-rr", "--arrival-rate", "20", "-o", "json"});
  ASSERT_EQ(over.code, kDone) << over.err;
  EXPECT_THAT(over.err, HasSubstr("20 requests/s arrive and at most "));
  EXPECT_EQ(std::count(over.err.begin(), over.err.end(), '\n'), 1);
  EXPECT_EQ(over.json().at("waitingGrows"), true);
  EXPECT_EQ(over.json().at("requests"), 100'000);
  EXPECT_THAT(run_chain({"simulate", "-f", kBloom, "--arrival-rate", "20", "--requests", "3000"}).out,
              HasSubstr("WAITING GROWS during the run, from "));
  const auto few = run_chain({"simulate", "-f", kBloom, "--policy", "ws-rr", "-o", "json", "--requests", "3000"});
  EXPECT_EQ(few.json().at("waitingGrows"), false);
  EXPECT_EQ(few.err, "");
}

// Given cases that Theorem 3.7 does not cover, another policy or other arrivals; expects no bounds. Given JFFC and Poisson
// arrivals; expects bounds.
TEST(ChainSimulate, BoundsOnlyWhereTheyHold) {
  const auto bounds = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", "-f", kBloom, "--requests", "500"});
    EXPECT_EQ(run_chain(more).out.find("Bounds on") != std::string::npos, more.size() == 5);
    more.insert(more.end(), {"-o", "json"});
    return run_chain(more).json().at("bounds");
  };
  EXPECT_TRUE(bounds({}).is_object());
  EXPECT_TRUE(bounds({"--policy", "jsq"}).is_null());
  EXPECT_TRUE(bounds({"--arrival-cv", "2"}).is_null());
}

// Given wrong command lines and files; expects exit code 2, no output, and a message that names the mistake.
TEST(ChainSimulate, MistakesAreNamed) {
  const TempFolder folder;
  const std::string file = folder.file("f.yaml", kFigure2);
  const std::string trace = folder.file("t.csv", kTrace);
  const std::string broken = folder.file("broken.csv", replaced(kTrace, "1024,1", "many,1"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"simulate"}, "windlass chain simulate: --file is required"},
      {{"simulate", "-f", "/no/such.yaml"}, "/no/such.yaml"},
      {{"simulate", "-f", file, "--policy", "best"}, "best"},
      {{"simulate", "-f", file, "--requests", "0"}, "--requests: must be a whole number from 1 to 1000000000 (got '0')"},
      {{"simulate", "-f", file, "--requests", "-5"}, "--requests"},
      {{"simulate", "-f", file, "--requests", "1e9999"}, "--requests"},
      {{"simulate", "-f", file, "--warmup", "-1"}, "--warmup"},
      {{"simulate", "-f", file, "--seed", "-1"}, "--seed"},
      {{"simulate", "-f", file, "--seed", "one"}, "--seed"},
      {{"simulate", "-f", file, "--replications", "0"}, "--replications"},
      {{"simulate", "-f", file, "--arrival-cv", "nan"}, "(got 'nan')"},
      {{"simulate", "-f", file, "--arrival-cv", "2", "--trace", trace}, "--arrival-cv"},
      {{"simulate", "-f", file, "--trace", "/no/such.csv"}, "/no/such.csv: must be"},
      {{"simulate", "-f", file, "--trace", folder.path().string()}, "it is a folder"},
      {{"simulate", "-f", file, "--trace", broken}, broken + ": trace: line 3: ContextTokens: must be an integer from 1"},
      {{"simulate", "-f", file, "--trace", trace, "--requests", "5"},
       "--requests: must be at most the trace's rows, with the warm-up (got 5 after 0 of warm-up; 4 rows in "},
      {{"simulate", "-f", file, "--trace", trace, "--warmup", "4"}, "(got 1 after 4 of warm-up; 4 rows in "},
      {{"simulate", "-f", file, "--trace", trace, "--replications", "2"}, "--replications: must be 1"},
      {{"simulate", "-f", file, "--policy", "ws-rr", "--optimal"}, "--optimal: needs a policy that dispatches to chains"},
      {{"simulate", "-f", file, "--policy", "ws-rr", "--capacity", "3"}, "--capacity: needs --placement gbp-cr"},
  };
  expect_mistakes(table);
}

}  // namespace
}  // namespace windlass::cli
