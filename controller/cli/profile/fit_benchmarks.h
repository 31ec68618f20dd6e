// Results of others' load generators, read for `windlass fit`: from a file, or from a folder of runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/perf/benchmark_results.h"

namespace windlass::cli {

// For messages: what such a file is.
inline constexpr const char* kBenchmarkFiles =
    "a result of `vllm bench serve --save-result`, AIPerf's profile_export_aiperf.json or .csv, GuideLLM's benchmarks.json, or "
    "a "
    "folder of them";

// All results in a file, or in the files of a folder and of its folders; others there are passed over. AIPerf writes each run
// as JSON and as CSV: the JSON counts. Error: nothing can be read, nothing is a result, or one is not what its tool writes.
[[nodiscard]] Result<std::vector<planner::BenchmarkResult>> read_benchmarks(const std::string& path,
                                                                            const std::function<void(const std::string&)>& say);

}  // namespace windlass::cli
