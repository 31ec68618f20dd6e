// Tests scenarios with several services, shared prefixes, pipeline stages, swapping, failures and TetriInfer's scheduling:
// parsing, conversion, and runs.
#include <cmath>

#include <gmock/gmock.h>

#include "planner/whatif/serving_json.h"
#include "tests/says.h"
#include "tests/unit/planner/whatif/scenario_text.h"

namespace windlass::sim {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kTwo = R"(seed: 3
services:
- name: chat
  model: {name: llama3-8b}
  latency: {source: linear}
  workload: {inputTokens: 500, outputTokens: 20, requestsPerSecond: 4, duration: 30s}
  cluster: {pools: [{accelerator: a100-80gb, workers: 2}]}
  slo: {timeToFirstToken: 500ms}
- name: code
  model: {name: mistral-7b}
  latency: {source: roofline}
  workload: {inputTokens: 900, outputTokens: 50, requestsPerSecond: 2, requests: 40}
  cluster: {pools: [{accelerator: l40s}]}
  scheduling: {batching: sarathi}
)";

// Given two services; expects each to behave as when alone except for its random streams, requests of both in order of time,
// separate counts per result, and both under their names in the JSON next to the sums.
TEST(ScenarioServices, TwoModels) {
  const auto scenario = prepared(kTwo);
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const auto& services = scenario->scenario().services;
  ASSERT_EQ(services.size(), 2u);
  EXPECT_EQ(services[1].name, "code");
  EXPECT_EQ(services[1].engine.batching, planner::Batching::kSarathi);
  EXPECT_THAT(scenario->scenario().defaults, Contains("services[0].scheduling.batching: vllm"));
  EXPECT_THAT(scenario->scenario().defaults, Contains("services[1].cluster.pools[0].workers: 1"));
  EXPECT_DOUBLE_EQ(scenario->requests_per_second(), 6);
  EXPECT_DOUBLE_EQ(scenario->requests_per_second(1), 2);
  const auto source = scenario->source(1);
  double last_s = 0;
  int counts[2] = {0, 0};
  while (const auto request = source->next()) {
    EXPECT_GE(request->arrival_s, last_s);
    last_s = request->arrival_s;
    ++counts[request->model];
    EXPECT_EQ(request->input_tokens, request->model == 0 ? 500 : 900);
  }
  EXPECT_EQ(counts[1], 40);
  const auto results = run_all(*scenario, 1);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].requests, counts[0]);
  EXPECT_EQ(results[1].requests, 40);
  EXPECT_EQ(results[1].completed, 40);
  EXPECT_EQ(results[0].workers.size(), 2u);
  std::vector<ServingReport> reports;
  for (const ServingResult& result : results) reports.push_back(report_of(std::vector{result}, 1, std::nullopt, 0));
  reports[0].percentile = 95;
  reports[0].attainment = MeanEstimate{results[0].attainment, std::nullopt};
  const auto json = to_json(reports, std::vector<std::string>{"chat", "code"});
  EXPECT_EQ(json.at("requests"), counts[0] + 40);
  EXPECT_EQ(json.at("sloMet"), reports[0].meets_objectives());
  EXPECT_DOUBLE_EQ(json.at("gpuHours").get<double>(), results[0].gpu_hours + results[1].gpu_hours);
  ASSERT_EQ(json.at("services").size(), 2u);
  EXPECT_EQ(json.at("services")[1].at("name"), "code");
  EXPECT_EQ(json.at("services")[1].at("requests"), 40);
  EXPECT_EQ(json.at("services")[0].at("workers").size(), 2u);
}

// Given errors inside a service; expects its path in the message, for errors in the text and in the conversion.
TEST(ScenarioServices, MistakesNameTheService) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"services: []\n", "s.yaml:1: services: must be a list of 1 to 100*(got 0 items)"},
      {"services: [{name: a b}]\n", "s.yaml:1: services[0].name: must be a name of at most*(got 'a b')"},
      {"services: [{name: a}]\n", "s.yaml:1: services[0].model: missing"},
      {with(kTwo, "requestsPerSecond: 2", "requestsPerSecond: 0"),
       "s.yaml:12: services[1].workload.requestsPerSecond: must*(got '0')"},
      {with(kTwo, "name: code", "name: chat"), "s.yaml:9: services[1].name: must be unique (got 'chat' a second time)"},
      {with(kTwo, "accelerator: l40s", "accelerator: l99"),
       "s.yaml:13: services[1].cluster.pools[0].accelerator: must be one of"},
      {with(kTwo, "batching: sarathi", "batching: any"), "s.yaml:14: services[1].scheduling.batching: must*(got 'any')"},
      {with(kTwo, "accelerator: l40s", "accelerator: l40s, role: decode"),
       "services[1].cluster.pools: must be all unified, or have both prefill and decode pools (got no prefill pool)"},
      {with(kTwo, "accelerator: l40s", "accelerator: t4"), "s.yaml:13: services[1].cluster.pools[0]: "},
      {with(kTwo, "seed: 3\n", "seed: 3\nmodel: {name: llama3-8b}\n"),
       "s.yaml:2: model: unknown field, must be one of seed, services"},
      {with(kTwo, "seed: 3\n", "seed: 3\ncluster: {pools: []}\n"), "s.yaml:2: cluster.pools: unknown field"},
      {with(kTwo, "workers: 2}]", "workers: 2}], failures: {meanTimeBetween: 1h}"),
       "s.yaml:7: services[0].cluster.failures: unknown field"},
  };
  for (const auto& [yaml, expected] : table) {
    const auto scenario = prepared(yaml);
    ASSERT_FALSE(scenario.ok()) << expected;
    EXPECT_THAT(scenario.error().message, Says(expected));
  }
}

// Given shared prefixes and an engine that caches them; expects prefix hits, a lower time to first token, and the same arrivals
// and lengths. vllm-v1 caches by default.
TEST(ScenarioServices, SharedPrefixes) {
  const std::string plain = with(kSmall, "inputTokens: 500", "inputTokens: 2000");
  const std::string shared =
      with(plain, "  requestsPerSecond: 4", "  requestsPerSecond: 4\n  sharedPrefixes: {count: 4, tokens: 1600}");
  const auto without = prepared(shared), caching = prepared(shared + "scheduling: {prefixCaching: true}\n"),
             today = prepared(shared + "scheduling: {batching: vllm-v1}\n");
  ASSERT_TRUE(without.ok() && caching.ok() && today.ok());
  EXPECT_THAT(caching->scenario().defaults, Contains("workload.sharedPrefixes.zipf: 1"));
  EXPECT_THAT(today->scenario().defaults, Contains("scheduling.prefixCaching: true"));
  const ServingResult slow = run(*without, 1), fast = run(*caching, 1), other = run(*today, 1);
  EXPECT_EQ(slow.prefix_hit_tokens, 0);
  EXPECT_GT(fast.prefix_hit_tokens, 1000 * fast.requests);
  EXPECT_GT(other.prefix_hit_tokens, 1000 * other.requests);
  EXPECT_EQ(fast.requests, slow.requests);
  EXPECT_LT(fast.ttft.mean_s, 0.6 * slow.ttft.mean_s);
}

// Given pipeline stages on a source that supports them; expects workers of tensor times pipeline parallel GPUs and a model with
// that many stages.
TEST(ScenarioServices, PipelineStages) {
  const auto scenario = prepared(with(
      with(kSmall, "source: linear", "source: roofline, tensorParallel: 2, pipelineParallel: 4"), ", gpusPerWorker: 1", ""));
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const ServingPool pool = scenario->options(1).services[0].pools[0];
  EXPECT_EQ(pool.spec.gpus(), 8);
  EXPECT_EQ(pool.model->pipeline_stages(), 4);
  EXPECT_THAT(scenario->bases(), Contains(HasSubstr("TP 2 x PP 4")));
  const ServingResult result = run(*scenario, 1);
  EXPECT_EQ(result.completed, result.requests);
  EXPECT_GT(result.mfu, 0);
  EXPECT_LT(result.mfu, 1);
}

// Given swapping with a small cache; expects caches to move to the host and back at the configured bandwidth.
TEST(ScenarioServices, Swapping) {
  const auto scenario = prepared(with(with(with(kSmall, "source: linear", "source: linear, kvCapacityTokens: 3000"),
                                           "requestsPerSecond: 4", "requestsPerSecond: 40"),
                                      "outputTokens: 20", "outputTokens: 300") +
                                 "scheduling: {preemption: swap, swapSpaceGB: 2, swapGBps: 10}\n");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const ServingPool pool = scenario->options(1).services[0].pools[0];
  const double kv_bytes = 2.0 * 32 * 8 * 128 * 2;
  EXPECT_EQ(pool.spec.engine.host_blocks, static_cast<std::int64_t>(2e9 / (kv_bytes * 16)));
  EXPECT_DOUBLE_EQ(pool.swap_s_per_token, kv_bytes / 10e9);
  const ServingResult result = run(*scenario, 1);
  EXPECT_GT(result.preemptions, 0);
  EXPECT_GT(result.swapped_tokens, 0);
}

// Given a worker that fails at 10 s and restarts; expects its successor to be ready after image, weights and engine, and
// everything that was not streaming to be served.
TEST(ScenarioServices, Failures) {
  const auto scenario = prepared(with(kSmall, "workers: 2}\n",
                                      "workers: 2}\n  start: {imagePull: 4s, weightsGBps: 8, engine: 1s}\n"
                                      "  failures: {at: [{time: 10s, worker: 0}]}\n"));
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  EXPECT_THAT(scenario->scenario().defaults, Contains("cluster.failures.restart: true"));
  const auto shape = planner::model_shape_by_name("llama3-8b");
  const double start_s = 4 + planner::weight_bytes(*shape) / 8e9 + 1;
  EXPECT_NEAR(scenario->options(1).services[0].pools[0].start_s, start_s, 1e-9);
  const ServingResult result = run(*scenario, 1);
  ASSERT_EQ(result.workers.size(), 3u);
  EXPECT_TRUE(result.workers[0].failed);
  EXPECT_DOUBLE_EQ(result.workers[0].ended_s, 10);
  EXPECT_DOUBLE_EQ(result.workers[2].created_s, 10);
  EXPECT_NEAR(result.workers[2].ready_s, 10 + start_s, 1e-6);
  EXPECT_EQ(result.completed + result.failed, result.requests);
  const auto json = to_json(report_of(std::vector{result}, 1, 95, 0));
  EXPECT_EQ(json.at("workers").size(), 3u);
  EXPECT_EQ(json.at("workers")[0].at("failed"), true);
  EXPECT_EQ(json.at("failed"), result.failed);
}

// Given TetriInfer's scheduling by name; expects it in the options, and a run that serves every request.
TEST(ScenarioServices, TetriInfersScheduling) {
  const auto scenario = prepared(
      with(kSmall, "  - {accelerator: a100-80gb, gpusPerWorker: 1, workers: 2}",
           "  - {role: prefill, accelerator: a100-80gb, workers: 2}\n  - {role: decode, accelerator: a100-80gb, workers: 3}") +
      "scheduling: {batching: sarathi, promptOrder: shortest-first, promptOrderWindow: 8, decodeAdmission: reserve-dynamic,\n"
      "  lengthPrediction: {bucketTokens: 100, accuracy: 0.8}, decodeChoice: two-choice, heavyDecodeTokens: 64,\n"
      "  flip: {window: 5s, below: 0.2, takes: 6ms}}\n");
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const ServingService service = scenario->options(1).services[0];
  EXPECT_EQ(service.pools[0].spec.engine.prompt_order, planner::PromptOrder::kShortestFirst);
  EXPECT_EQ(service.pools[0].spec.engine.prompt_order_window, 8);
  EXPECT_EQ(service.pools[1].spec.engine.admission, planner::DecodeAdmission::kReserveDynamic);
  EXPECT_EQ(service.dispatch.decode_choice, dispatch::DecodeChoice::kTwoChoice);
  EXPECT_EQ(service.dispatch.heavy_decode_tokens, 64);
  EXPECT_EQ(service.dispatch.prediction->bucket_tokens, 100);
  EXPECT_EQ(service.dispatch.prediction->accuracy, 0.8);
  EXPECT_EQ(service.dispatch.flip->window_s, 5);
  EXPECT_EQ(service.dispatch.flip->below, 0.2);
  EXPECT_DOUBLE_EQ(service.dispatch.flip->flip_s, 0.006);
  const ServingResult result = run(*scenario, 1);
  EXPECT_EQ(result.completed, result.requests);
}

// Given one file per accelerator; expects each pool to read its own, and an error that names an accelerator without one.
TEST(ScenarioServices, FilesByAccelerator) {
  const std::string yaml = R"(model: {name: llama2-70b}
latency: {source: profile, files: {h100-80gb: h.csv, a100-80gb: a.csv}}
workload: {inputTokens: 500, outputTokens: 5, requestsPerSecond: 1, duration: 9s}
cluster:
  pools:
  - {role: prefill, accelerator: h100-80gb, gpusPerWorker: 8}
  - {role: decode, accelerator: a100-80gb, gpusPerWorker: 8}
)";
  std::string slower = kProfile;
  for (std::size_t at = 0; (at = slower.find("h100", at)) != std::string::npos;) slower.replace(at, 4, "a100");
  slower = with(slower, ",30,1930", ",60,1930");
  std::vector<std::string> paths;
  const auto parsed = parse_scenario(yaml, "s.yaml");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  for (const ScenarioFile& file : files_of(*parsed)) paths.push_back(file.path + " " + file.field);
  EXPECT_THAT(paths, testing::ElementsAre("a.csv latency.files.a100-80gb", "h.csv latency.files.h100-80gb"));
  const auto scenario = prepared(yaml, {{"h.csv", kProfile}, {"a.csv", slower}});
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  const auto pools = scenario->options(1).services[0].pools;
  EXPECT_NEAR(pools[0].model->iteration_s(planner::decode_batch(1, 160)), 0.030, 0.002);
  EXPECT_GT(pools[1].model->iteration_s(planner::decode_batch(1, 160)), 0.055);
}

constexpr const char* kScaled = R"(model: {name: llama3-8b}
latency: {source: linear}
workload: {inputTokens: 500, outputTokens: 200, requestsPerSecond: 20, duration: 200s}
cluster:
  pools: [{accelerator: a100-80gb, workers: 1}]
  start: {imagePull: 5s, weightsGBps: 10, engine: 5s}
  autoscaling: {gpus: {a100-80gb: 6}}
scaling: {minWorkers: 1, assumed: {requestsPerSecond: 1, inputTokens: 500, outputTokens: 200}}
slo: {timeToFirstToken: 2s, timePerOutputToken: 40ms}
)";

// Given more load than one worker serves and the controller in the loop; expects workers to start, to be ready after their
// start time, and never to exceed the GPUs; the decisions in the JSON; and one result per seed.
TEST(ScenarioServices, Autoscaling) {
  const auto scenario = prepared(kScaled);
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  EXPECT_THAT(scenario->scenario().defaults, Contains("cluster.autoscaling.interval: 1s"));
  EXPECT_THAT(scenario->scenario().defaults, Contains("scaling.scaleDownStabilization: 300s"));
  EXPECT_EQ(prepared(kSmall)->autoscaler(), nullptr);
  std::vector<ServingReport> reports;
  for (int once = 0; once < 2; ++once) {
    const auto autoscaler = scenario->autoscaler();
    ASSERT_NE(autoscaler, nullptr);
    ClusterOptions options = scenario->options(1);
    options.controller = autoscaler.get();
    const auto source = scenario->source(1);
    const auto results = simulate_cluster(*source, options);
    ASSERT_TRUE(results.ok()) << results.error().message;
    EXPECT_TRUE(autoscaler->problem().ok());
    const ServingResult& result = results->front();
    EXPECT_EQ(result.completed, result.requests);
    EXPECT_GT(result.max_workers, 1);
    int gpus = 0;
    for (const WorkerFigures& worker : result.workers) {
      const ServingPool* pool = &options.services[0].pools[0];
      if (worker.pool == pool->name) gpus += 1;
      if (worker.created_s > 0 && worker.pool == pool->name) {
        EXPECT_NEAR(worker.ready_s - worker.created_s, pool->start_s, 1e-6);
      }
    }
    EXPECT_LE(gpus, 6);
    reports.push_back(report_of(std::vector{result}, 1, 95, 0));
    reports.back().decisions = autoscaler->decisions();
  }
  const auto json = to_json(reports[0]);
  EXPECT_EQ(json, to_json(reports[1]));
  ASSERT_FALSE(json.at("decisions").empty());
  EXPECT_GT(json.at("decisions").back().at("workers").get<int>(), 1);
  EXPECT_FALSE(json.at("decisions")[0].at("reasons").empty());
}

// Given autoscaling together with options that the policy does not plan; expects an error that names them.
TEST(ScenarioServices, AutoscalingMistakes) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {with(kScaled, ", timePerOutputToken: 40ms", ""), "s.yaml:5: slo: must have timeToFirstToken and timePerOutputToken"},
      {with(kScaled, "slo: {timeToFirstToken: 2s, timePerOutputToken: 40ms}", ""),
       "s.yaml:5: slo: must have timeToFirstToken and timePerOutputToken"},
      {with(kScaled, "workers: 1}]", "role: prefill}, {accelerator: a100-80gb, role: decode}]"),
       "s.yaml:5: cluster.pools: must be unified with autoscaling"},
      {with(kScaled, "  autoscaling: {gpus: {a100-80gb: 6}}\n", ""), "s.yaml:6: cluster.start: belongs to cluster.autoscaling"},
      {with(with(kScaled, "  autoscaling: {gpus: {a100-80gb: 6}}\n", ""),
            "  start: {imagePull: 5s, weightsGBps: 10, engine: 5s}\n", ""),
       "s.yaml:6: scaling: belongs to cluster.autoscaling"},
      {with(kScaled, "gpus: {a100-80gb: 6}", "gpus: {a1000: 6}"), "s.yaml:7: cluster.autoscaling.gpus: must be one of"},
      {with(kScaled, "gpus: {a100-80gb: 6}", "gpus: {a100-80gb: 0}"),
       "s.yaml:7: cluster.autoscaling.gpus.a100-80gb: must be at least 1, the GPUs that the pools begin with (got 0)"},
      {with(kScaled, "gpus: {a100-80gb: 6}", "metricsAge: 31s"), "s.yaml:7: cluster.autoscaling.metricsAge: must*(got '31s')"},
      {with(kSmall, "cluster:\n", "cluster:\n  failures: {at: [{time: 1s, worker: 2}], restart: false}\n"),
       "s.yaml:10: cluster.failures.at[0].worker: must be from 0 to 1, because no worker starts during the run (got 2)"},
      {with(kScaled, "gpus: {a100-80gb: 6}", "interval: 0s"), "s.yaml:7: cluster.autoscaling.interval: must*(got '0s')"},
      {with(kScaled, "minWorkers: 1", "minWorkers: 5, maxWorkers: 3"), "s.yaml:8: scaling.maxWorkers: must*(got '3')"},
      {with(kScaled, "minWorkers: 1", "minWorkers: 1, idleToZeroAfter: 9s"),
       "scaling.idleToZeroAfter: belongs to minWorkers: 0"},
      {with(with(kScaled, "source: linear", "source: roofline, pipelineParallel: 2"), "workers: 1", "gpusPerWorker: 2"),
       "s.yaml:2: latency.pipelineParallel: must be 1 with autoscaling"},
  };
  for (const auto& [yaml, expected] : table) {
    const auto scenario = prepared(yaml);
    ASSERT_FALSE(scenario.ok()) << expected;
    EXPECT_THAT(scenario.error().message, Says(expected));
  }
}

}  // namespace
}  // namespace windlass::sim
