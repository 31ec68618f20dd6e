// Tests SCENARIO files: what is read, which defaults are reported, and each error with its line and field.
#include "planner/whatif/scenario_yaml.h"

#include <gmock/gmock.h>

#include "planner/base/rng.h"
#include "planner/base/yaml_reader.h"
#include "tests/effort.h"
#include "tests/says.h"
#include "tests/unit/planner/whatif/scenario_text.h"

namespace windlass::sim {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

// A complete scenario.
constexpr const char* kIssue = R"(seed: 0
model: {name: bloom-176b}                      # or {config: path/to/config.json}
latency: {source: profile, file: perf_model.csv, tensorParallel: 8}   # or linear | distserve | operators | roofline
workload:
  trace: AzureLLMInferenceTrace_code.csv       # or lengths: FILE, or inputTokens/outputTokens distributions
  arrivals: poisson                            # poisson | gamma | trace | diurnal
  requestsPerSecond: 70
  duration: 120s
cluster:
  pools:
  - {role: prefill, accelerator: h100-80gb, gpusPerWorker: 8, workers: 27}
  - {role: decode,  accelerator: h100-80gb, gpusPerWorker: 8, workers: 3}
  link: {bandwidthGBps: 200, latency: 5us}   # one uncontended link per prefill-decode pair
scheduling: {batching: vllm, dispatch: jsq, mixedPool: true, mixedPoolThresholdTokens: 8192, maxBatchTokens: 2048}
slo: {timeToFirstToken: 500ms, timePerOutputToken: 50ms, percentile: 95}
slowdownReference: {accelerator: a100-80gb, gpusPerWorker: 8}     # the same request alone on it
)";

// Given a complete scenario; expects every field in its place, and defaults reported only for fields left open.
TEST(ScenarioYaml, ReadsACompleteScenario) {
  const auto scenario = parse_scenario(kIssue, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  EXPECT_EQ(scenario->seed, 0u);
  EXPECT_EQ(scenario->services[0].model.name, "bloom-176b");
  EXPECT_EQ(scenario->services[0].model.shape->layers, 70);
  EXPECT_EQ(scenario->services[0].latency.source, LatencySource::kProfile);
  EXPECT_EQ(scenario->services[0].latency.reading, planner::ProfileReading::kBatchTokens);
  EXPECT_EQ(scenario->services[0].latency.model, "bloom-176b");
  EXPECT_EQ(scenario->services[0].workload.arrivals, ArrivalKind::kPoisson);
  EXPECT_EQ(scenario->services[0].workload.requests_per_second, 70);
  EXPECT_EQ(scenario->services[0].workload.duration_s, 120);
  ASSERT_EQ(scenario->services[0].pools.size(), 2u);
  EXPECT_EQ(scenario->services[0].pools[0].role, dispatch::Role::kPrefill);
  EXPECT_EQ(scenario->services[0].pools[0].workers, 27);
  EXPECT_EQ(scenario->services[0].pools[1].role, dispatch::Role::kDecode);
  EXPECT_EQ(scenario->services[0].pools[1].gpus_per_worker, 8);
  EXPECT_EQ(scenario->services[0].link.bandwidth_bytes_per_s, 200e9);
  EXPECT_EQ(scenario->services[0].link.latency_s, 5e-6);
  EXPECT_EQ(scenario->services[0].engine.batching, planner::Batching::kVllm);
  EXPECT_EQ(scenario->services[0].engine.max_batch_tokens, 2048);
  EXPECT_EQ(scenario->services[0].dispatch.policy, dispatch::PolicyKind::kJsq);
  EXPECT_EQ(scenario->services[0].dispatch.mixed_pool_threshold_tokens, 8192);
  EXPECT_EQ(scenario->services[0].slo->ttft_s, 0.5);
  EXPECT_EQ(scenario->services[0].slo->tpot_s, 0.05);
  EXPECT_EQ(scenario->services[0].slo->percentile, 95);
  EXPECT_EQ(scenario->services[0].slowdown_reference->accelerator.name, "a100-80gb");
  EXPECT_THAT(scenario->defaults, Contains("scheduling.maxSequences: 256"));
  EXPECT_THAT(scenario->defaults, Not(Contains(StartsWith("scheduling.batching"))));
  std::vector<std::string> paths;
  for (const ScenarioFile& file : files_of(*scenario)) paths.push_back(file.path);
  EXPECT_THAT(paths, testing::ElementsAre("perf_model.csv", "AzureLLMInferenceTrace_code.csv"));
}

// Given only the required fields; expects success, and the other values reported as defaults.
TEST(ScenarioYaml, OnlyFourFieldsAreRequired) {
  const auto scenario = parse_scenario(R"(model: {name: llama3-8b}
latency: {source: linear}
workload: {inputTokens: 10, outputTokens: 10, requestsPerSecond: 1, requests: 5}
cluster: {pools: [{accelerator: l4}]}
)",
                                       "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  for (const char* told : {"seed: 0", "workload.arrivals: poisson", "cluster.pools[0].role: unified",
                           "cluster.pools[0].gpusPerWorker: 1", "cluster.pools[0].workers: 1", "scheduling.batching: vllm",
                           "scheduling.dispatch: jsq", "scheduling.maxBatchTokens: 2048"}) {
    EXPECT_THAT(scenario->defaults, Contains(told));
  }
  EXPECT_EQ(scenario->services[0].pools[0].price_per_gpu_hour, scenario->services[0].pools[0].accelerator.price_per_hour);
  EXPECT_FALSE(scenario->services[0].slo.has_value());
}

// Given each kind of arrivals and of lengths; expects them in the workload's own types.
TEST(ScenarioYaml, ReadsEveryKindOfWorkload) {
  const auto gamma =
      parse_scenario(with(kSmall, "  requestsPerSecond: 4", "  requestsPerSecond: 4\n  arrivals: gamma\n  cv: 3"), "s");
  ASSERT_TRUE(gamma.ok()) << gamma.error().message;
  EXPECT_EQ(gamma->services[0].workload.cv, 3);
  const auto diurnal =
      parse_scenario(with(kSmall, "  requestsPerSecond: 4",
                          "  requestsPerSecond: 4\n  arrivals: diurnal\n  diurnal: {peakToTrough: 3, period: 1h, peakAt: 30m,\n"
                          "    bursts: {every: 10m, requests: 50, duration: 2s}}"),
                     "s");
  ASSERT_TRUE(diurnal.ok()) << diurnal.error().message;
  EXPECT_EQ(diurnal->services[0].workload.diurnal.peak_to_trough, 3);
  EXPECT_EQ(diurnal->services[0].workload.diurnal.period_s, 3600);
  EXPECT_DOUBLE_EQ(diurnal->services[0].workload.diurnal.burst_rate_per_s, 1.0 / 600);
  const auto states = parse_scenario(with(kSmall, "  requestsPerSecond: 4",
                                          "  arrivals: markovModulated\n  states: [{requestsPerSecond: 1, meanDwell: 9s}, "
                                          "{requestsPerSecond: 20, meanDwell: 1s}]"),
                                     "s");
  ASSERT_TRUE(states.ok()) << states.error().message;
  EXPECT_EQ(states->services[0].workload.states.states.size(), 2u);
  EXPECT_EQ(states->services[0].workload.states.states[1].rate_per_s, 20);
  const auto lengths =
      parse_scenario(with(with(kSmall, "inputTokens: 500", "inputTokens: {distribution: uniform, min: 2, max: 9}"),
                          "outputTokens: 20", "outputTokens: {distribution: lognormal, mean: 40, cv: 1, max: 99}"),
                     "s");
  ASSERT_TRUE(lengths.ok()) << lengths.error().message;
  EXPECT_EQ(std::get<workload::UniformTokens>(*lengths->services[0].workload.input_tokens).high, 9);
  EXPECT_EQ(std::get<workload::LogNormalTokens>(*lengths->services[0].workload.output_tokens).max_tokens, 99);
}

// Given every dispatch policy and batching by name; expects them to be accepted, and "jsq-tokens" to count tokens while "jsq"
// is planner/dispatch's.
TEST(ScenarioYaml, KnowsPoliciesByName) {
  for (const char* policy : {"jsq", "jsq-tokens", "jffc", "jiq", "sed", "sa-jsq", "random", "round-robin", "power-of-two",
                             "aladdin", "by-size", "weighted-round-robin", "single-instance", "memory-based", "huawei"}) {
    const auto scenario = parse_scenario(std::string(kSmall) + "scheduling: {dispatch: " + policy + "}\n", "s");
    ASSERT_TRUE(scenario.ok()) << scenario.error().message;
    EXPECT_EQ(scenario->services[0].dispatch.policy.has_value(), std::string(policy) != "jsq-tokens");
  }
  for (const char* batching : {"static", "orca", "vllm", "mixed", "sarathi", "vllm-v1"}) {
    const auto scenario = parse_scenario(std::string(kSmall) + "scheduling: {batching: " + batching + "}\n", "s");
    ASSERT_TRUE(scenario.ok()) << scenario.error().message;
    EXPECT_STREQ(to_string(scenario->services[0].engine.batching), batching);
  }
}

struct Wrong {
  const char* part;
  const char* other;
  const char* expected;
};

// Given one error at a time; expects the file, the line, the field, the value and the rule.
TEST(ScenarioYaml, MistakesAreNamed) {
  const std::string end = "percentile: 95}\n";
  const std::vector<Wrong> table = {
      {"seed: 3", "seed: -1", "s.yaml:1: seed: must be a whole number from 0*(got '-1')"},
      {"seed: 3", "seed: three", "s.yaml:1: seed: must*(got 'three')"},
      {"seed: 3", "seeds: 3", "s.yaml:1: seeds: unknown field, must be one of seed, services, model, latency"},
      {"model: {name: llama3-8b}\n", "", "s.yaml:1: model: missing, must be a map with name or config"},
      {"model: {name: llama3-8b}", "model: llama3-8b", "s.yaml:2: model: must be a map*(got 'llama3-8b')"},
      {"name: llama3-8b", "name: llama9", "s.yaml:2: model.name: must be one of"},
      {"name: llama3-8b", "name: llama3-8b, config: c.json",
       "s.yaml:2: model: must have either name or config (got name and config)"},
      {"{name: llama3-8b}", "{}", "s.yaml:2: model: must have either name or config (got neither name nor config)"},
      {"name: llama3-8b", "name: llama3-8b, maxContextTokens: 0", "s.yaml:2: model.maxContextTokens: must*(got '0')"},
      {"latency: {source: linear}\n", "", "latency: missing"},
      {"source: linear", "source: magic", "s.yaml:3: latency.source: must be one of profile, linear, distserve*(got 'magic')"},
      {"source: linear", "source: operators", "s.yaml:3: latency.file: missing, must be the path of a folder"},
      {"source: linear", "source: profile", "s.yaml:3: latency.file: missing"},
      {"source: linear", "source: roofline, file: x", "s.yaml:3: latency.file: belongs to the sources"},
      {"source: linear", "source: linear, pipelineParallel: 2", "s.yaml:3: latency.pipelineParallel: must be 1*(got '2')"},
      {"source: linear", "source: linear, tensorParallel: 4",
       "s.yaml:11: cluster.pools[0].gpusPerWorker: must be latency.tensorParallel, 4 (got 1)"},
      {"source: linear", "source: linear, cpu: {iteration: 2ms}", "s.yaml:3: latency.cpu: must be left out"},
      {"source: linear", "source: roofline, cpu: {iteration: -2ms}", "s.yaml:3: latency.cpu.iteration: must*(got '-2ms')"},
      {"source: linear", "source: roofline, cpu: {perToken: 2ms}", "s.yaml:3: latency.cpu.perToken"},
      {"source: linear", "source: linear, kvCapacityTokens: 0", "s.yaml:3: latency.kvCapacityTokens: must*(got '0')"},
      {"  inputTokens: 500\n  outputTokens: 20\n", "",
       "s.yaml:5: workload: must have one of trace, lengths, or inputTokens with outputTokens (got none)"},
      {"  inputTokens: 500\n", "", "s.yaml:5: workload.inputTokens: must be a number of tokens"},
      {"inputTokens: 500", "inputTokens: 0", "s.yaml:5: workload.inputTokens: must be a whole number from 1*(got '0')"},
      {"inputTokens: 500", "inputTokens: -7", "s.yaml:5: workload.inputTokens: must*(got '-7')"},
      {"inputTokens: 500", "inputTokens: {distribution: zipf}",
       "s.yaml:5: workload.inputTokens.distribution: must*(got 'zipf')"},
      {"inputTokens: 500", "inputTokens: {distribution: uniform, min: 9, max: 3}",
       "s.yaml:5: workload.inputTokens.max: must be a whole number from 9*(got '3')"},
      {"inputTokens: 500", "trace: t.csv\n  inputTokens: 500",
       "workload: must have one of trace, lengths, or inputTokens with outputTokens (got trace and inputTokens and "
       "outputTokens)"},
      {"requestsPerSecond: 4", "requestsPerSecond: 0", "s.yaml:7: workload.requestsPerSecond: must*(got '0')"},
      {"  requestsPerSecond: 4\n", "", "workload.requestsPerSecond: missing"},
      {"requestsPerSecond: 4", "requestsPerSecond: 4\n  arrivals: sometimes",
       "s.yaml:8: workload.arrivals: must*(got 'sometimes')"},
      {"requestsPerSecond: 4", "requestsPerSecond: 4\n  arrivals: trace",
       "workload.arrivals: must be poisson, gamma, diurnal or markovModulated without workload.trace"},
      {"requestsPerSecond: 4", "requestsPerSecond: 4\n  arrivals: gamma", "workload.cv: missing"},
      {"requestsPerSecond: 4", "requestsPerSecond: 4\n  cv: 2", "s.yaml:8: workload.cv: belongs to arrivals: gamma"},
      {"requestsPerSecond: 4", "requestsPerSecond: 4\n  arrivals: diurnal", "workload.diurnal: missing"},
      {"requestsPerSecond: 4",
       "requestsPerSecond: 4\n  arrivals: markovModulated\n  states: [{requestsPerSecond: 1, meanDwell: 1s}]",
       "s.yaml:7: workload.requestsPerSecond: belongs to the states"},
      {"requestsPerSecond: 4", "arrivals: markovModulated\n  states: [{requestsPerSecond: 0, meanDwell: 1s}]",
       "s.yaml:8: workload.states: must have a state with requestsPerSecond"},
      {"  duration: 30s\n", "", "workload.duration: must be a time such as 120s"},
      {"duration: 30s", "duration: 30", "s.yaml:8: workload.duration: must be a time with its unit*(got '30')"},
      {"duration: 30s", "duration: -30s", "s.yaml:8: workload.duration: must*(got '-30s')"},
      {"duration: 30s", "duration: 30s\n  scale: rate", "s.yaml:9: workload.scale: belongs to arrivals: trace"},
      {"accelerator: a100-80gb", "accelerator: a1000", "s.yaml:11: cluster.pools[0].accelerator: must be one of"},
      {"accelerator: a100-80gb, ", "", "s.yaml:11: cluster.pools[0].accelerator: missing"},
      {"workers: 2", "workers: 0", "s.yaml:11: cluster.pools[0].workers: must*(got '0')"},
      {"workers: 2", "workers: 2, startDelay: 3s", "s.yaml:11: cluster.pools[0].startDelay: unknown field"},
      {"workers: 2", "workers: 2, role: prefill", "prefill and decode pools (got no decode pool)"},
      {"workers: 2", "workers: 2, role: decode", "prefill and decode pools (got no prefill pool)"},
      {"workers: 2", "workers: 2, role: draft", "s.yaml:11: cluster.pools[0].role: must*(got 'draft')"},
      {"workers: 2}", "workers: 2}\n  - {accelerator: l4, role: decode}",
       "prefill and decode pools (got unified and other pools)"},
      {"workers: 2}", "workers: 2}\n  link: {bandwidthGBps: 5}",
       "s.yaml:12: cluster.link: belongs to prefill and decode pools"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {mixedPool: true}\n",
       "scheduling.mixedPool: belongs to prefill and decode"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {mixedPoolThresholdTokens: 9}\n", "belongs to mixedPool: true"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {repurpose: {window: 60s}}\n",
       "scheduling.repurpose: belongs to mixedPool: true"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {batching: tetris}\n",
       "s.yaml:13: scheduling.batching: must*(got 'tetris')"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {dispatch: best}\n",
       "s.yaml:13: scheduling.dispatch: must*(got 'best')"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {preemption: pause}\n",
       "scheduling.preemption: must be one of recompute, swap*(got 'pause')"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {swapSpaceGB: 4}\n",
       "s.yaml:13: scheduling.swapSpaceGB: belongs to preemption: swap"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {preemption: swap, swapSpaceGB: -4}\n",
       "scheduling.swapSpaceGB: must*(got '-4')"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {prefixCaching: maybe}\n",
       "scheduling.prefixCaching: must*(got 'maybe')"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {promptOrder: sjf}\n",
       "scheduling.promptOrder: must be one of arrival, shortest-first, longest-first*(got 'sjf')"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {promptOrderWindow: 8}\n",
       "scheduling.promptOrderWindow: belongs to promptOrder"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {decodeAdmission: lazy}\n",
       "scheduling.decodeAdmission: must be one of greedy, reserve-static, reserve-dynamic*(got 'lazy')"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {lengthPrediction: {accuracy: 2}}\n",
       "scheduling.lengthPrediction.accuracy: must be a number from 0 to 1*(got '2')"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {decodeChoice: two-choice}\n",
       "scheduling.decodeChoice: belongs to prefill and decode pools"},
      {"percentile: 95}\n", "percentile: 95}\nscheduling: {flip: {window: 1s}}\n",
       "s.yaml:13: scheduling.flip: belongs to prefill and decode pools"},
      {"percentile: 95}\n", "percentile: 95}\nautoscaler: {}\n", "s.yaml:13: autoscaler: unknown field"},
      {"workers: 2}\n", "workers: 2}\n  start: {imagePull: 3s}\n", "s.yaml:12: cluster.start: belongs to "},
      {"workers: 2}\n", "workers: 2}\n  failures: {}\n", "s.yaml:12: cluster.failures: must have meanTimeBetween, at, or both"},
      {"workers: 2}\n", "workers: 2}\n  failures: {meanTimeBetween: 1s}\n",
       "cluster.failures.meanTimeBetween: must*(got '1s')"},
      {"workers: 2}\n", "workers: 2}\n  failures: {at: [{time: 3s}]}\n", "s.yaml:12: cluster.failures.at[0].worker: missing"},
      {"workers: 2}\n", "workers: 2}\n  failures: {at: soon}\n", "cluster.failures.at: must be a list*(got 'soon')"},
      {"workers: 2}\n", "workers: 2}\n  start: {weightsGBps: 0}\n  failures: {meanTimeBetween: 1h}\n",
       "s.yaml:12: cluster.start.weightsGBps: must*(got '0')"},
      {"requestsPerSecond: 4", "requestsPerSecond: 4\n  sharedPrefixes: {count: 0, tokens: 9}",
       "s.yaml:8: workload.sharedPrefixes.count: must*(got '0')"},
      {"requestsPerSecond: 4", "requestsPerSecond: 4\n  sharedPrefixes: {count: 5}", "workload.sharedPrefixes.tokens: missing"},
      {"source: linear", "source: roofline, pipelineParallel: 2, tensorParallel: 2",
       "s.yaml:11: cluster.pools[0].gpusPerWorker: must be latency.tensorParallel times pipelineParallel, 4 (got 1)"},
      {"source: linear", "source: roofline, pipelineParallel: 2",
       "s.yaml:11: cluster.pools[0].gpusPerWorker: must be a multiple of latency.pipelineParallel, 2 (got 1)"},
      {"source: linear", "source: roofline, files: {l4: x}", "s.yaml:3: latency.files: belongs to the sources"},
      {"source: linear", "source: profile, files: {l4000: x}", "s.yaml:3: latency.files: must be one of"},
      {"source: linear", "source: profile, files: {l4: x}",
       "s.yaml:11: cluster.pools[0].accelerator: must be listed in latency.files (got a100-80gb)"},
      {"percentile: 95}\n", "percentile: 95}\nslowdownReference: {accelerator: l4, gpusPerWorker: 0}\n",
       "slowdownReference.gpusPerWorker: must*(got '0')"},
      {"timeToFirstToken: 500ms, timePerOutputToken: 50ms, ", "",
       "s.yaml:12: slo: must have timeToFirstToken, timePerOutputToken or both"},
      {"500ms", "500", "s.yaml:12: slo.timeToFirstToken: must*(got '500')"},
      {"percentile: 95", "percentile: 101", "s.yaml:12: slo.percentile: must be a number from 0 to 100*(got '101')"},
  };
  for (const Wrong& wrong : table) {
    const auto scenario = parse_scenario(with(kSmall, wrong.part, wrong.other), "s.yaml");
    ASSERT_FALSE(scenario.ok()) << wrong.other;
    EXPECT_EQ(scenario.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(scenario.error().message, Says(wrong.expected)) << wrong.other;
    EXPECT_THAT(scenario.error().message, StartsWith("s.yaml:"));
    EXPECT_EQ(scenario.error().message.find('\n'), std::string::npos);
  }
}

// Given a scenario whose pools do not suit its batching or latency source; expects an error that names the field.
TEST(ScenarioYaml, PoolsMustSuitTheRest) {
  for (const char* batching : {"static", "orca"}) {
    const auto scenario = parse_scenario(with(kIssue, "batching: vllm", std::string("batching: ") + batching), "s.yaml");
    ASSERT_FALSE(scenario.ok());
    EXPECT_THAT(scenario.error().message, HasSubstr("with prefill and decode pools (got '" + std::string(batching) + "')"));
  }
  const auto two_chips = parse_scenario(with(with(kIssue, "source: profile", "source: distserve"),
                                             "decode,  accelerator: h100-80gb", "decode,  accelerator: a100-80gb"),
                                        "s.yaml");
  ASSERT_FALSE(two_chips.ok());
  EXPECT_THAT(
      two_chips.error().message,
      HasSubstr("cluster.pools[1].accelerator: must be h100-80gb, because latency.file has one accelerator (got a100-80gb)"));
  const auto reference = parse_scenario(with(kIssue, "source: profile", "source: distserve"), "s.yaml");
  ASSERT_FALSE(reference.ok());
  EXPECT_THAT(
      reference.error().message,
      HasSubstr("slowdownReference.accelerator: must be h100-80gb, because latency.file has one accelerator (got a100-80gb)"));
}

// Given scenarios with thousands of random byte changes; expects a scenario or an error of one line.
TEST(ScenarioYaml, SurvivesRandomBytes) {
  Rng rng(5, "fuzz");
  int accepted = 0;
  const std::vector<std::string> sane = {kIssue, kSmall, kEverything};
  for (const std::string& text : sane) EXPECT_TRUE(parse_scenario(text, "s").ok());
  for (int i = 0; i < effort(600, 6000); ++i) {
    std::string text = sane[static_cast<std::size_t>(i % 3)];
    const auto changes = rng.integer(1, 3);
    for (int change = 0; change < changes; ++change) {
      const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1));
      switch (rng.integer(0, 2)) {
        case 0: text[at] = static_cast<char>(rng.integer(0, 255)); break;
        case 1: text.erase(at, static_cast<std::size_t>(rng.integer(1, 20))); break;
        default:
          text.insert(at, text.substr(static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(at))), 12));
          break;
      }
    }
    const auto scenario = parse_scenario(text, "s");
    accepted += scenario.ok();
    if (!scenario.ok()) {
      EXPECT_THAT(scenario.error().message, StartsWith("s:"));
      EXPECT_EQ(scenario.error().message.find('\n'), std::string::npos) << scenario.error().message;
    }
  }
  EXPECT_GT(accepted, effort(6, 100));
}

// Given times with units; expects their seconds; given anything else; expects none. Expects the output of duration_text to be
// read back.
TEST(ScenarioYaml, Durations) {
  EXPECT_EQ(duration_seconds("120s"), 120);
  EXPECT_EQ(duration_seconds("500ms"), 0.5);
  EXPECT_EQ(duration_seconds("5us"), 5e-6);
  EXPECT_EQ(duration_seconds("20ns"), 2e-8);
  EXPECT_EQ(duration_seconds("1.5h"), 5400);
  EXPECT_EQ(duration_seconds("2m"), 120);
  for (const char* wrong : {"", "s", "12", "-1s", "1 s", "1e999s", "0x1s", "nans", "1sec", "s1", "--1s", "1d"}) {
    EXPECT_EQ(duration_seconds(wrong), std::nullopt) << wrong;
  }
  for (const double seconds : {0.0, 2e-8, 5e-6, 0.0123, 0.5, 1.0, 90.0, 86400.0}) {
    EXPECT_DOUBLE_EQ(*duration_seconds(duration_text(seconds)), seconds) << duration_text(seconds);
  }
}

}  // namespace
}  // namespace windlass::sim
