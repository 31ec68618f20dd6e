// Scenarios for tests: small texts that are right, and one change at a time.
#pragma once

#include <cassert>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/sim/scenario.h"
#include "planner/sim/scenario_yaml.h"

namespace windlass::sim {

// Needs no file. Four lines before "workload".
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

// A text with one part in another's place. REQUIRES: the part is there.
inline std::string with(std::string text, const std::string& part, const std::string& other) {
  const std::size_t at = text.find(part);
  assert(at != std::string::npos);
  return text.replace(at, part.size(), other);
}

inline Result<PreparedScenario> prepared(const std::string& yaml, const std::map<std::string, std::string>& texts = {}) {
  WINDLASS_ASSIGN_OR_RETURN(Scenario scenario, parse_scenario(yaml, "s.yaml"));
  return PreparedScenario::make(std::move(scenario), texts);
}

// One run of its only service. REQUIRES: it is right.
inline ServingResult run(const PreparedScenario& scenario, std::uint64_t seed, double rate_factor = 1) {
  const auto source = scenario.source(seed, rate_factor);
  auto results = simulate_cluster(*source, scenario.options(seed));
  assert(results.ok());
  return std::move(results->front());
}

// All services of one run. REQUIRES: it is right.
inline std::vector<ServingResult> run_all(const PreparedScenario& scenario, std::uint64_t seed) {
  const auto source = scenario.source(seed);
  auto results = simulate_cluster(*source, scenario.options(seed));
  assert(results.ok());
  return std::move(results).value();
}

}  // namespace windlass::sim
