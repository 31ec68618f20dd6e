// Small valid scenario texts for tests, and a helper to change one part at a time.
#pragma once

#include <cassert>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/whatif/scenario.h"
#include "planner/whatif/scenario_yaml.h"

namespace windlass::sim {

// Needs no files. Four lines before "workload".
inline constexpr const char* kSmall = R"(seed: 3
model: {name: llama3-8b}
latency: {source: linear}
workload:
  inputTokens: 500
  outputTokens: 20
  requestsPerSecond: 4
  duration: 30s
cluster:
  pools:
  - {accelerator: a100-80gb, gpusPerWorker: 1, workers: 2}
slo: {timeToFirstToken: 500ms, timePerOutputToken: 50ms, percentile: 95}
)";

// Every field that can be combined. Needs no files.
inline constexpr const char* kEverything = R"(seed: 3
services:
- name: chat
  model: {name: llama3-8b, maxContextTokens: 8000}
  latency: {source: roofline, tensorParallel: 1, kvCapacityTokens: 90000}
  workload:
    inputTokens: {distribution: lognormal, mean: 700, cv: 1, max: 4000}
    outputTokens: {distribution: uniform, min: 1, max: 90}
    sharedPrefixes: {count: 9, tokens: 300, zipf: 0.9}
    arrivals: diurnal
    diurnal: {peakToTrough: 3, period: 10m, bursts: {every: 1m, requests: 5, duration: 2s}}
    requestsPerSecond: 4
    duration: 30s
  cluster:
    pools: [{accelerator: a100-80gb, workers: 2, pricePerGpuHour: 2}]
    start: {imagePull: 1s, weightsGBps: 5, engine: 3s}
  scaling: {minWorkers: 0, maxWorkers: 9, idleToZeroAfter: 5m, scaleUpStabilization: 3s, priority: 4, maxCostPerHour: 50,
    assumed: {requestsPerSecond: 1, inputTokens: 500, outputTokens: 50}}
  scheduling: {batching: vllm-v1, dispatch: jffc, preemption: swap, swapSpaceGB: 2, promptOrder: longest-first,
    promptOrderWindow: 9, decodeAdmission: reserve-static, lengthPrediction: {bucketTokens: 9, accuracy: 0.5}}
  slo: {timeToFirstToken: 2s, timePerOutputToken: 60ms}
- name: code
  model: {name: mistral-7b}
  latency: {source: linear}
  workload: {inputTokens: 900, outputTokens: 50, requestsPerSecond: 2, requests: 40, truncate: true}
  cluster: {pools: [{accelerator: l40s}]}
  slo: {timeToFirstToken: 2s, timePerOutputToken: 60ms, percentile: 90}
cluster:
  failures: {meanTimeBetween: 10m, at: [{time: 9s, worker: 1}], restart: true}
  autoscaling: {interval: 2s, metricsAge: 1s, gpus: {l40s: 4, a100-80gb: 9}}
)";

// Splitwise's columns; milliseconds.
inline constexpr const char* kProfile =
    R"(model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time,tensor_parallel
llama2-70b,h100-80gb,128,1,64,40,30,1930,8
llama2-70b,h100-80gb,1024,1,64,100,30,1990,8
llama2-70b,h100-80gb,128,16,64,200,32,2216,8
llama2-70b,h100-80gb,4096,1,64,400,31,2353,8
)";

inline constexpr const char* kTrace = R"(TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.0000000,100,11
2023-11-16 18:17:04.0000000,200,1
2023-11-16 18:17:05.0000000,300,21
2023-11-16 18:17:07.0000000,400,31
)";

// Replaces one part of a text. REQUIRES: the text contains the part.
inline std::string with(std::string text, const std::string& part, const std::string& other) {
  const std::size_t at = text.find(part);
  assert(at != std::string::npos);
  return text.replace(at, part.size(), other);
}

inline Result<PreparedScenario> prepared(const std::string& yaml, const std::map<std::string, std::string>& texts = {}) {
  WINDLASS_ASSIGN_OR_RETURN(Scenario scenario, parse_scenario(yaml, "s.yaml"));
  return PreparedScenario::make(std::move(scenario), texts);
}

// Runs the only service of a scenario. REQUIRES: the run succeeds.
inline ServingResult run(const PreparedScenario& scenario, std::uint64_t seed, double rate_factor = 1) {
  const auto source = scenario.source(seed, rate_factor);
  auto results = simulate_cluster(*source, scenario.options(seed));
  assert(results.ok());
  return std::move(results->front());
}

// Runs all services of a scenario. REQUIRES: the run succeeds.
inline std::vector<ServingResult> run_all(const PreparedScenario& scenario, std::uint64_t seed) {
  const auto source = scenario.source(seed);
  auto results = simulate_cluster(*source, scenario.options(seed));
  assert(results.ok());
  return std::move(results).value();
}

}  // namespace windlass::sim
