// Reads results of other load generators for `windlass fit`: one file, or a folder of runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/perf/benchmark_results.h"

namespace windlass::cli {

// Describes such a file in messages.
inline constexpr const char* kBenchmarkFiles =
    "a result of `vllm bench serve --save-result`, AIPerf's profile_export_aiperf.json or .csv, GuideLLM's benchmarks.json, or "
    "a folder of them";

// All results in a file, or in the files of a folder and its subfolders; other files there are skipped. AIPerf writes each run
// as JSON and CSV; only the JSON is used. Errors: nothing can be read, nothing is a result, or one is malformed.
[[nodiscard]] Result<std::vector<planner::BenchmarkResult>> read_benchmarks(const std::string& path,
                                                                            const std::function<void(const std::string&)>& say);

}  // namespace windlass::cli
