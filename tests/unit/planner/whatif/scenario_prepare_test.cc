// Tests the conversion of scenarios with their files against values computed by hand and the models themselves, and errors in
// files.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "planner/perf/distserve_model.h"
#include "planner/perf/linear_model.h"
#include "planner/perf/profile_yaml.h"
#include "tests/says.h"
#include "tests/unit/planner/whatif/scenario_text.h"
#include "tests/unit/profile_text.h"

namespace windlass::sim {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kOnTrace = R"(model: {name: llama2-70b}
latency: {source: profile, file: p.csv}
workload: {trace: t.csv, arrivals: trace}
cluster: {pools: [{accelerator: h100-80gb, gpusPerWorker: 8}]}
)";

// Given a trace of four widely spaced requests on a profile; expects each to take the time computed by hand from the profile:
// prompts interpolated between rows at the batch's tokens, decodes at one token.
TEST(ScenarioPrepare, ReplaysATraceOnAProfile) {
  const auto scenario = prepared(with(kOnTrace, "arrivals: trace", "arrivals: trace, requestsPerSecond: 0.01"),
                                 {{"p.csv", kProfile}, {"t.csv", kTrace}});
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  EXPECT_FALSE(scenario->random());
  EXPECT_DOUBLE_EQ(scenario->requests_per_second(), 0.01);
  const auto rows = planner::parse_profile_csv(kProfile);
  const auto table =
      planner::ProfileTable::make(*rows, {"llama2-70b", "h100-80gb", 8}, planner::ProfileReading::kBatchTokens, 1e6);
  ASSERT_TRUE(table.ok());
  double ttft_s = 0, e2e_s = 0;
  for (const auto& [input, output] : {std::pair{100, 11}, std::pair{200, 1}, std::pair{300, 21}, std::pair{400, 31}}) {
    const double prefill_s = table->iteration_s(planner::prefill_batch(1, input));
    ttft_s += prefill_s / 4;
    e2e_s += (prefill_s + (output - 1) * table->iteration_s(planner::decode_batch(1, input))) / 4;
  }
  const ServingResult result = run(*scenario, 1);
  EXPECT_EQ(result.requests, 4);
  EXPECT_EQ(result.completed, 4);
  EXPECT_NEAR(result.ttft.mean_s, ttft_s, 1e-8);
  EXPECT_NEAR(result.e2e.mean_s, e2e_s, 1e-7);
  EXPECT_GT(result.extrapolated_iterations, 0);  // decodes at one token lie below the rows
}

// Given a pool with a weight; expects it in the dispatch; without one, expects none.
TEST(ScenarioPrepare, WeighsPools) {
  const auto weighed = prepared(with(kOnTrace, "gpusPerWorker: 8", "gpusPerWorker: 8, dispatchWeight: 2.5"),
                                {{"p.csv", kProfile}, {"t.csv", kTrace}});
  ASSERT_TRUE(weighed.ok()) << weighed.error().message;
  const ServingService options = weighed->options(1).services[0];
  EXPECT_EQ(options.pools[0].dispatch_weight, 2.5);
  const auto plain = prepared(kOnTrace, {{"p.csv", kProfile}, {"t.csv", kTrace}});
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  const ServingService without = plain->options(1).services[0];
  EXPECT_EQ(without.pools[0].dispatch_weight, 0);
}

// Given the linear source; expects the model's own coefficients, a cache of what the memory leaves, and kvCapacityTokens to
// override it.
TEST(ScenarioPrepare, LinearUsesTheCatalog) {
  const auto scenario = prepared(with(kSmall, "requestsPerSecond: 4", "requestsPerSecond: 0.001\n  requests: 1"));
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const ServingService options = scenario->options(1).services[0];
  const auto shape = planner::model_shape_by_name("llama3-8b");
  const auto c = planner::linear_coefficients(*shape, scenario->scenario().services[0].pools[0].accelerator, 1,
                                              planner::EngineType::kWindlass);
  EXPECT_NEAR(options.pools[0].model->iteration_s(planner::prefill_batch(1, 500)), c.k1 * 500 + c.c1, 1e-12);
  EXPECT_NEAR(options.pools[0].model->iteration_s(planner::decode_batch(3, 100)), (c.k2 * 100 + c.c2) * 3 + c.c3, 1e-12);
  EXPECT_EQ(options.pools[0].spec.engine.kv_blocks, static_cast<std::int64_t>(c.kv_capacity_tokens) / 16);
  const auto small = prepared(with(kSmall, "source: linear", "source: linear, kvCapacityTokens: 800"));
  ASSERT_TRUE(small.ok()) << small.error().message;
  EXPECT_EQ(small->options(1).services[0].pools[0].spec.engine.kv_blocks, 50);
}

// Given a fit on profile rows that lie on a line; expects the fitted model to reproduce the rows' times.
TEST(ScenarioPrepare, LinearIsFittedOnRows) {
  std::string csv = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n";
  for (const int prompt : {100, 200, 400, 800}) {
    for (const int batch : {1, 2, 4}) {
      const double prompt_ms = 20 + 0.1 * prompt * batch, token_ms = 10 + 0.5 * batch + 0.001 * batch * (prompt + 32);
      csv += fmt::format("llama2-70b,h100-80gb,{},{},64,{},{},8\n", prompt, batch, prompt_ms, token_ms);
    }
  }
  const auto scenario = prepared(with(kOnTrace, "source: profile", "source: linear"), {{"p.csv", csv}, {"t.csv", kTrace}});
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const ServingService options = scenario->options(0).services[0];
  EXPECT_NEAR(options.pools[0].model->iteration_s(planner::prefill_batch(3, 300)), 0.020 + 0.0001 * 900, 1e-6);
  EXPECT_NEAR(options.pools[0].model->iteration_s(planner::decode_batch(3, 300)), 0.010 + 0.0005 * 3 + 0.000001 * 900, 1e-6);
}

// Given a profile whose decodes were measured at one context, by a line that counts all of a request's time for its context;
// expects the line there, and beyond it the growth of the data sheet, as the controller believes.
TEST(ScenarioPrepare, ALineOfOneContextGrowsAsTheDataSheet) {
  planner::PerformanceProfile profile;
  profile.model = "llama3-8b";
  profile.accelerator = "a100-80gb";
  profile.source = {"rows.csv", "BenchmarkResults", 20, 0};
  planner::FittedLines lines;
  lines.form = planner::LinearForm::kAladdin;
  lines.prefill = {{1e-4, 0, 0, 0.02}, {1, 4, 64, 512, 64, 2048}};
  lines.decode = {{1e-4, 0, 0, 0.03}, {1, 16, 50, 50, 50, 800}};
  profile.fit = lines;
  const nlohmann::json object = {{"apiVersion", "windlass.dev/v1alpha1"},
                                 {"kind", "PerformanceProfile"},
                                 {"metadata", {{"name", "p"}}},
                                 {"spec", planner::to_json(profile)}};
  const auto scenario = prepared(with(kSmall, "source: linear", "source: linear, file: p.yaml"), {{"p.yaml", object.dump()}});
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const planner::IterationModel& model = *scenario->options(1).services[0].pools[0].model;
  EXPECT_NEAR(model.iteration_s(planner::decode_batch(8, 50)), 0.03 + 1e-4 * 8 * 50, 1e-3);
  const auto sheet =
      planner::linear_coefficients(*planner::model_shape_by_name("llama3-8b"),
                                   scenario->scenario().services[0].pools[0].accelerator, 1, planner::EngineType::kWindlass);
  const double growth = (sheet.k2 * 1000 + sheet.c2) / (sheet.k2 * 50 + sheet.c2);
  EXPECT_NEAR(model.iteration_s(planner::decode_batch(8, 1000)), 0.03 + 1e-4 * 8 * 50 * growth, 3e-3);
  EXPECT_EQ(model.coverage(planner::decode_batch(8, 50)), planner::Coverage::kMeasured);
  EXPECT_EQ(model.coverage(planner::decode_batch(8, 1000)), planner::Coverage::kExtrapolated);
}

// Given an engine with published runs; expects its CPU time in the iterations of the roofline and of the data sheet's line, and
// a stated CPU time instead of it. Given a source that has the engine's time; expects the field to be refused.
TEST(ScenarioPrepare, EnginesAddTheirCpuTime) {
  const planner::Batch decodes = planner::decode_batch(4, 100);
  const auto iteration_s = [&](const std::string& latency) {
    const auto scenario = prepared(with(kSmall, "latency: {source: linear}", "latency: {" + latency + "}"));
    EXPECT_TRUE(scenario.ok()) << scenario.error().message;
    return scenario.ok() ? scenario->options(1).services[0].pools[0].model->iteration_s(decodes) : 0;
  };
  const planner::EngineOverhead vllm = planner::overhead_of(planner::EngineType::kVLLM).value();
  const double bare_s = iteration_s("source: roofline");
  EXPECT_NEAR(iteration_s("source: roofline, engine: VLLM"), bare_s + vllm.iteration_s + 4 * vllm.sequence_s, 1e-9);
  EXPECT_NEAR(iteration_s("source: roofline, engine: VLLM, cpu: {iteration: 5ms}"), bare_s + 5e-3, 1e-9);
  EXPECT_EQ(iteration_s("source: roofline, engine: Windlass"), bare_s);
  EXPECT_NE(iteration_s("source: linear, engine: VLLM"), iteration_s("source: linear"));
  const auto refused =
      prepared(with(kOnTrace, "source: profile", "source: profile, engine: VLLM"), {{"p.csv", kProfile}, {"t.csv", kTrace}});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, testing::HasSubstr("engine"));
}

// Given DistServe's files; expects its formula and its capacities; without capacities the catalog's.
TEST(ScenarioPrepare, DistServe) {
  const std::string profile = R"({"facebook/opt-13b": {"2": {"decoding_large_small_bs_threshold": 95,
    "prefill": [14, 0.07, 2e-6], "decoding_smallbs": [13, 0.0003, 0.06], "decoding_largebs": [10, 0.0003, 0.08]}}})";
  const std::string yaml = R"(model: {name: opt-13b}
latency: {source: distserve, file: d.json, capacities: c.csv}
workload: {inputTokens: 100, outputTokens: 5, requestsPerSecond: 1, duration: 10s}
cluster: {pools: [{accelerator: a100-80gb, gpusPerWorker: 2}]}
)";
  const auto scenario =
      prepared(yaml, {{"d.json", profile}, {"c.csv", "model,tp,pp,max_num_tokens\nfacebook/opt-13b,2,1,1600\n"}});
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const ServingService options = scenario->options(0).services[0];
  EXPECT_EQ(options.pools[0].spec.engine.kv_blocks, 100);
  EXPECT_NEAR(options.pools[0].model->iteration_s(planner::prefill_batch(1, 100)), (14 + 7 + 0.02 + 1) * 1e-3, 1e-12);
  const auto without = prepared(with(yaml, ", capacities: c.csv", ""), {{"d.json", profile}});
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_GT(without->options(0).services[0].pools[0].spec.engine.kv_blocks, 1000);
  const auto other = prepared(with(yaml, "gpusPerWorker: 2", "gpusPerWorker: 4"),
                              {{"d.json", profile}, {"c.csv", "model,tp,pp,max_num_tokens\nfacebook/opt-13b,2,1,1600\n"}});
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, StartsWith("s.yaml:4: cluster.pools[0]: d.json: "));
  EXPECT_THAT(other.error().message, HasSubstr("tensor parallel degree: must be one of 2 (got 4)"));
}

// Given the roofline source; expects a faster chip to be faster, nothing to count as measured, and int4 weights to be rejected.
TEST(ScenarioPrepare, Roofline) {
  const auto slow = prepared(with(kSmall, "source: linear", "source: roofline"));
  ASSERT_TRUE(slow.ok()) << slow.error().message;
  const auto fast = prepared(with(with(kSmall, "source: linear", "source: roofline"), "a100-80gb", "h200-141gb"));
  ASSERT_TRUE(fast.ok()) << fast.error().message;
  const ServingResult result = run(*slow, 1), faster = run(*fast, 1);
  EXPECT_EQ(result.extrapolated_iterations, result.iterations);
  EXPECT_GT(result.tbt.mean_s, faster.tbt.mean_s);
}

// Given kernels from data sheets and additional CPU time; expects each iteration to take that much longer.
TEST(ScenarioPrepare, CpuTimeIsAdded) {
  const auto bare = prepared(with(kSmall, "source: linear", "source: roofline"));
  const auto cpu = prepared(with(kSmall, "source: linear", "source: roofline, cpu: {iteration: 2ms, sequence: 100us}"));
  ASSERT_TRUE(bare.ok() && cpu.ok());
  const planner::Batch batch = planner::decode_batch(8, 500);
  const ClusterOptions without = bare->options(1), with_cpu = cpu->options(1);
  EXPECT_NEAR(with_cpu.services[0].pools[0].model->iteration_s(batch) - without.services[0].pools[0].model->iteration_s(batch),
              2e-3 + 8 * 100e-6, 1e-9);
}

// Given one scenario at twice the rate; expects about twice the requests in the same time, the same lengths, and another mean
// rate.
TEST(ScenarioPrepare, RatesScale) {
  const std::string common = "inputTokens: {distribution: uniform, min: 1, max: 900}";
  for (const char* arrivals : {"requestsPerSecond: 4", "requestsPerSecond: 4\n  arrivals: gamma\n  cv: 2",
                               "requestsPerSecond: 4\n  arrivals: diurnal\n  diurnal: {peakToTrough: 2, period: 10s}",
                               "arrivals: markovModulated\n  states: [{requestsPerSecond: 1, meanDwell: 1s}, "
                               "{requestsPerSecond: 7, meanDwell: 1s}]"}) {
    const auto scenario = prepared(with(with(with(kSmall, "inputTokens: 500", common), "requestsPerSecond: 4", arrivals),
                                        "duration: 30s", "duration: 300s"));
    ASSERT_TRUE(scenario.ok()) << scenario.error().message;
    EXPECT_TRUE(scenario->random());
    EXPECT_NEAR(scenario->requests_per_second(), 4, 1e-9) << arrivals;
    const auto count = [&](double factor) { return static_cast<double>(run(*scenario, 2, factor).requests); };
    const double once = count(1), twice = count(2);
    EXPECT_NEAR(once, 1200, 350) << arrivals;
    EXPECT_NEAR(twice / once, 2, 0.3) << arrivals;
    const auto slow = scenario->source(2, 1), fast = scenario->source(2, 2);
    for (int i = 0; i < 100; ++i) {
      const auto a = slow->next(), b = fast->next();
      EXPECT_EQ(a->input_tokens, b->input_tokens);
      EXPECT_GE(a->input_tokens, 1);
      EXPECT_LE(a->input_tokens, 900);
    }
  }
}

// Given a trace and Poisson arrivals; expects requests to be drawn from the trace's rows with replacement, at the given rate,
// or the trace's own without one.
TEST(ScenarioPrepare, DrawsFromATrace) {
  const std::string yaml = with(kOnTrace, "arrivals: trace", "duration: 1000s, requestsPerSecond: 5");
  const auto scenario = prepared(yaml, {{"p.csv", kProfile}, {"t.csv", kTrace}});
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const auto source = scenario->source(1);
  const std::map<int, int> outputs = {{100, 11}, {200, 1}, {300, 21}, {400, 31}};
  std::map<int, int> seen;
  double last_s = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto request = source->next();
    ++seen[request->input_tokens];
    EXPECT_EQ(request->output_tokens, outputs.at(request->input_tokens));
    last_s = request->arrival_s;
  }
  EXPECT_EQ(seen.size(), 4u);
  for (const auto& [tokens, times] : seen) EXPECT_NEAR(times, 1000, 150) << tokens;
  EXPECT_NEAR(last_s, 800, 60);
  const auto own = prepared(with(kOnTrace, "arrivals: trace", "duration: 10s"), {{"p.csv", kProfile}, {"t.csv", kTrace}});
  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_DOUBLE_EQ(own->requests_per_second(), 3.0 / 4);
}

// Given prefill and decode pools without a link; expects the slower side's network, reported as a default. With a mixed pool;
// expects engines that batch prompts and decodes together.
TEST(ScenarioPrepare, LinkAndMixedPool) {
  const std::string yaml = with(kSmall, "  - {accelerator: a100-80gb, gpusPerWorker: 1, workers: 2}",
                                "  - {role: prefill, accelerator: h100-80gb, gpusPerWorker: 2}\n"
                                "  - {role: decode, accelerator: a100-80gb}\nscheduling: {mixedPool: true}");
  const auto scenario = prepared(yaml);
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const ServingService options = scenario->options(1).services[0];
  EXPECT_DOUBLE_EQ(options.link.path.bandwidth_bytes_per_s, 25e9);  // one A100's HDR 200 Gbit/s
  EXPECT_EQ(options.link.path.layers, 0);
  EXPECT_DOUBLE_EQ(options.link.kv_bytes_per_token, 2.0 * 32 * 8 * 128 * 2);
  EXPECT_EQ(options.pools[0].spec.engine.batching, planner::Batching::kMixed);
  EXPECT_EQ(options.dispatch.mixed_pool_threshold_tokens, 8192);
  EXPECT_THAT(scenario->scenario().defaults, testing::Contains(StartsWith("cluster.link.bandwidthGBps: 25 ")));
  const ServingResult result = run(*scenario, 1);
  EXPECT_EQ(result.completed, result.requests);
  EXPECT_EQ(result.kv_transfers, result.requests);
}

// Given a split service whose decode workers' profile has measured transfers; expects them as the link, in bytes of the cache
// and reported as measured, and the second token later than over the network by the difference. Values in the scenario override
// them; of two decode pools the slower one counts (its network if it has no measurement); a prefill worker's measurement is
// ignored.
TEST(ScenarioPrepare, MeasuredTransfersAreTheLink) {
  const std::string split =
      with(with(kSmall, "source: linear", "source: linear, files: {h100-80gb: h.yaml, a100-80gb: a.yaml}"),
           "  - {accelerator: a100-80gb, gpusPerWorker: 1, workers: 2}",
           "  - {role: prefill, accelerator: h100-80gb}\n  - {role: decode, accelerator: a100-80gb}");
  constexpr const char* kSlow = "{bandwidthBytesPerSecond: '2e+09', latencySeconds: '0.003', bytesPerToken: '262144'}";
  const auto of = [&](const std::string& yaml, const char* prefill, const char* decode) {
    return prepared(yaml, {{"h.yaml", profile_text("llama3-8b", "h100-80gb", 1, prefill)},
                           {"a.yaml", profile_text("llama3-8b", "a100-80gb", 1, decode)},
                           {"l.yaml", profile_text("llama3-8b", "l40s", 1, "")}});
  };
  const auto path_of = [](const Result<PreparedScenario>& scenario) {
    EXPECT_TRUE(scenario.ok()) << scenario.error().message;
    return scenario->options(1).services[0].link.path;
  };
  const auto measured = of(split, "", kSlow), network = of(split, kSlow, "");
  EXPECT_EQ(path_of(measured), (planner::KvTransferPath{1e9, 0.003, 0, 0}));
  EXPECT_EQ(path_of(network).bandwidth_bytes_per_s, 25e9);
  EXPECT_THAT(measured->scenario().defaults, testing::Contains("cluster.link.bandwidthGBps: 1 (measured)"));
  EXPECT_THAT(measured->scenario().defaults, testing::Contains("cluster.link.latency: 3ms (measured)"));
  const ServingResult late = run(*measured, 1), soon = run(*network, 1);
  EXPECT_EQ(late.kv_transfers, late.requests);
  const double slower_s = 0.003 + 500 * 131072.0 / 1e9 - path_of(network).latency_s - 500 * 131072.0 / 25e9;
  EXPECT_NEAR(late.e2e.mean_s - soon.e2e.mean_s, slower_s, 0.1 * slower_s);
  EXPECT_EQ(late.ttft.mean_s, soon.ttft.mean_s);

  const auto said = of(with(split, "cluster:\n", "cluster:\n  link: {bandwidthGBps: 40}\n"), "", kSlow);
  EXPECT_EQ(path_of(said), (planner::KvTransferPath{40e9, 0.003, 0, 0}));
  const std::string two = with(with(split, "a.yaml}", "a.yaml, l40s: l.yaml}"), "decode, accelerator: a100-80gb}",
                               "decode, accelerator: a100-80gb}\n  - {role: decode, accelerator: l40s}");
  const auto both = of(two, "", "{bandwidthBytesPerSecond: '90e+09', latencySeconds: '0.003'}");
  EXPECT_LT(path_of(both).bandwidth_bytes_per_s, 90e9);
  EXPECT_EQ(path_of(both).latency_s, 0.003);
  EXPECT_THAT(both->scenario().defaults, testing::Contains(HasSubstr("(the slower of measurement and network)")));
}

// Given files with errors, or that do not match the scenario; expects one line with the file and line, or the scenario's line
// and field, and the rule.
TEST(ScenarioPrepare, MistakesAreNamed) {
  struct Case {
    std::string yaml, profile, trace, expected;
  };
  const std::vector<Case> table = {
      {kOnTrace, kProfile, with(kTrace, "ContextTokens,", ""), "t.csv: trace: line 1: header"},
      {kOnTrace, kProfile, with(kTrace, "18:17:05", "18:17:01"), "t.csv: trace: line 4: TIMESTAMP"},
      {kOnTrace, kProfile, with(kTrace, "2023-11-16 18:17:05", "yesterday"),
       "t.csv: trace: line 4: TIMESTAMP: must*(got 'yesterday"},
      {kOnTrace, kProfile, with(kTrace, ",200,1", ",0,1"), "t.csv: trace: line 3: ContextTokens: must*(got '0')"},
      {kOnTrace, kProfile, with(kTrace, ",200,1", ",-5,1"), "t.csv: trace: line 3: ContextTokens: must*(got '-5')"},
      {kOnTrace, kProfile, with(kTrace, ",200,1", ",200,0"), "t.csv: trace: line 3: GeneratedTokens: must*(got '0')"},
      {kOnTrace, kProfile, with(kTrace, ",200,1", ",5000,1"), "t.csv: trace: line 3: ContextTokens: must*(got '5000')"},
      {kOnTrace, with(kProfile, "prompt_time,", "prompt_tme,"), kTrace, "p.csv: line 1: "},
      {kOnTrace, with(kProfile, "8\n", "many\n"), kTrace, "p.csv: line 2: tensor_parallel: must*(got 'many')"},
      {kOnTrace, with(kProfile, ",100,30", ",-100,30"), kTrace, "p.csv: line 3: prompt_time"},
      {with(kOnTrace, "gpusPerWorker: 8", "gpusPerWorker: 4"), kProfile, kTrace,
       "s.yaml:4: cluster.pools[0]: p.csv: profile: must have a usable row for llama2-70b"},
      {with(kOnTrace, "h100-80gb", "a100-80gb"), kProfile, kTrace,
       "s.yaml:4: cluster.pools[0]: p.csv: profile: must have a usable row"},
      {with(kOnTrace, "gpusPerWorker: 8", "gpusPerWorker: 1"), kProfile, kTrace,
       "s.yaml:4: cluster.pools[0]: must have memory for llama2-70b, whose weights take 138 GB besides activations and KV "
       "cache (got 1 x h100-80gb with 86 GB)"},
      {with(kOnTrace, "file: p.csv", "file: p.csv, kvCapacityTokens: 9"), kProfile, kTrace,
       "s.yaml:4: cluster.pools[0]: must have a KV cache of at least scheduling.blockTokens, 16 tokens (got 9)"},
      {with(kOnTrace, "arrivals: trace", "arrivals: trace, requestsPerSecond: 2"), kProfile,
       "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.0000000,100,11\n",
       "s.yaml:3: workload.requestsPerSecond: must be left out"},
  };
  for (const Case& wrong : table) {
    const auto scenario = prepared(wrong.yaml, {{"p.csv", wrong.profile}, {"t.csv", wrong.trace}});
    ASSERT_FALSE(scenario.ok()) << wrong.expected;
    EXPECT_THAT(scenario.error().message, Says(wrong.expected));
    EXPECT_EQ(scenario.error().message.find('\n'), std::string::npos);
  }
  const auto config = prepared(with(kSmall, "name: llama3-8b", "config: c.json"), {{"c.json", "{}"}});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.error().message, StartsWith("c.json: "));
  const auto longer = prepared(with(kSmall, "inputTokens: 500", "inputTokens: 9000"));
  ASSERT_FALSE(longer.ok());
  EXPECT_THAT(longer.error().message, StartsWith("s.yaml:5: workload.inputTokens"));
  const auto truncated = prepared(with(kSmall, "inputTokens: 500", "inputTokens: 9000\n  truncate: true"));
  ASSERT_TRUE(truncated.ok()) << truncated.error().message;
  EXPECT_EQ(truncated->source(1)->next()->input_tokens, 8191);
  const auto lengths = prepared(with(with(kSmall, "inputTokens: 500\n", "lengths: l.csv\n"), "  outputTokens: 20\n", ""),
                                {{"l.csv", "num_prefill_tokens,num_decode_tokens\n5,0\n"}});
  ASSERT_FALSE(lengths.ok());
  EXPECT_THAT(lengths.error().message, StartsWith("l.csv: "));
  EXPECT_THAT(lengths.error().message, Says("line 2: num_decode_tokens: must be*(got '0')"));
}

// Given BLOOM, whose positions have no table; expects prompts longer than its training length to be served. Given a limit;
// expects them to be refused.
TEST(ScenarioPrepare, BloomHasNoContextLimit) {
  const std::string yaml =
      with(with(kSmall, "name: llama3-8b", "name: bloom-176b"), "a100-80gb, gpusPerWorker: 1", "a100-80gb, gpusPerWorker: 8");
  EXPECT_TRUE(prepared(with(yaml, "inputTokens: 500", "inputTokens: 7000")).ok());
  EXPECT_FALSE(prepared(with(with(yaml, "inputTokens: 500", "inputTokens: 7000"), "name: bloom-176b",
                             "name: bloom-176b, maxContextTokens: 4096"))
                   .ok());
}

}  // namespace
}  // namespace windlass::sim
